import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A worker of a share group: bootstrap, topic, group, what to do with records, and with how many of them. */
class ShareWorker {
    public static void main(String[] words) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", words[0]);
        config.put("group.id", words[2]);
        config.put("share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(words[1]));
            int left = Integer.parseInt(words[4]);
            while (left > 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.offset() + " " + record.deliveryCount().get() + " " + record.value());
                    if (words[3].equals("HOLD")) {
                        Thread.sleep(600_000);
                    }
                    consumer.acknowledge(record, AcknowledgeType.valueOf(words[3]));
                    left--;
                }
                consumer.commitSync();
            }
        }
    }
}
