import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Reads cells, one in a line, tries all of them at once with Java's clients, and writes how each ended. */
public class Matrix {
    static final String TOPIC = "matrix";
    static final String SEPARATOR = "\u001f";

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).lines().toList();
        var pool = Executors.newFixedThreadPool(lines.size());
        for (var line : lines) {
            var parts = line.split(SEPARATOR);
            pool.submit(() -> say(parts[0], attempt(parts)));
        }
        pool.shutdown();
        pool.awaitTermination(150, TimeUnit.SECONDS);
        System.exit(0);
    }

    static synchronized void say(String cell, String outcome) {
        System.out.println(cell + SEPARATOR + outcome.replace('\n', ' '));
    }

    static String attempt(String[] parts) {
        Thread.currentThread().setContextClassLoader(Matrix.class.getClassLoader()); // Kafka finds Token by it
        var config = new Properties();
        for (var part : Arrays.copyOfRange(parts, 2, parts.length)) {
            var equals = part.indexOf('=');
            config.put(part.substring(0, equals), part.substring(equals + 1));
        }
        config.put("key.serializer", StringSerializer.class);
        config.put("value.serializer", StringSerializer.class);
        config.put("key.deserializer", StringDeserializer.class);
        config.put("value.deserializer", StringDeserializer.class);
        config.put("max.block.ms", "60000");
        try {
            return writeAndRead(config, Double.parseDouble(parts[1]));
        } catch (Throwable error) {
            return reason(error) + "\t" + error;
        }
    }

    static String writeAndRead(Properties config, double seconds) throws Exception {
        var value = UUID.randomUUID().toString();
        long offset;
        try (var producer = new KafkaProducer<String, String>(config)) {
            offset = producer.send(new ProducerRecord<>(TOPIC, value)).get().offset();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            var ends = System.nanoTime() + (long) (seconds * 1e9);
            while (System.nanoTime() < ends) {
                sent.add(producer.send(new ProducerRecord<>(TOPIC, value)));
                Thread.sleep(10);
            }
            for (var each : sent) each.get();
            if (seconds > 0 && reauthentications(producer) < 1) return "out\tit never logged in again";
        }
        try (var consumer = new KafkaConsumer<String, String>(config)) {
            var partition = new TopicPartition(TOPIC, 0);
            consumer.assign(Set.of(partition));
            consumer.seek(partition, offset);
            for (var record : consumer.poll(Duration.ofSeconds(60)))
                if (record.value().equals(value)) return "in";
            return "out\tthe record was not read";
        }
    }

    static double reauthentications(KafkaProducer<?, ?> producer) {
        return producer.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals("successful-reauthentication-total"))
            .mapToDouble(metric -> (double) metric.metricValue()).sum();
    }

    static String reason(Throwable error) {
        for (var each = error; each != null; each = each.getCause()) {
            if (each instanceof SaslAuthenticationException) return "login";
            if (each instanceof SslAuthenticationException) return "tls";
        }
        return "out";
    }

    /** Gives the token of the login module. */
    public static class Token implements AuthenticateCallbackHandler {
        private String token;

        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
            token = (String) entries.get(0).getOptions().get("token");
        }

        public void close() {}

        public void handle(Callback[] callbacks) {
            for (var callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback wanted) wanted.token(new Given(token));
            }
        }
    }

    record Given(String value) implements OAuthBearerToken {
        public Set<String> scope() { return Set.of(); }
        public long lifetimeMs() { return System.currentTimeMillis() + 3_600_000; }
        public String principalName() { return "alice"; }
        public Long startTimeMs() { return System.currentTimeMillis(); }
    }
}
