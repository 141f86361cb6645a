"""What public dashboards ask Prometheus for, as far as it is about brokers and not about JVMs and containers.

Grafana's dashboard 7589 shows what kafka_exporter tells; Strimzi's two show that and what Kafka's beans tell through
the JMX exporter. Each query must find a series. Kubernetes' labels, by which Strimzi chooses brokers, are given to the
targets by the scrape configuration of the test.
"""

from __future__ import annotations

from typing import Final

TARGET_LABELS: Final = {
    "namespace": "kafka",
    "strimzi_io_cluster": "demo",
    "container": "kafka",
}
"""Labels of all brokers; each has its own kubernetes_pod_name, too."""
POD: Final = "demo-broker-{}"

_CLUSTER: Final = 'namespace="kafka",strimzi_io_cluster="demo"'
_PODS: Final = f'{_CLUSTER},kubernetes_pod_name=~"demo-.+"'
_TOPIC: Final = 'topic=~".+"'
_BEANS: Final = "kafka_server_brokertopicmetrics_"

GRAFANA_7589: Final = (
    *(
        f"sum({wrapped}) by ({by})"
        for wrapped, by in (
            (f"rate(kafka_topic_partition_current_offset{{{_TOPIC}}}[1m])", "topic"),
            (f"kafka_consumergroup_lag{{{_TOPIC}}}", "consumergroup, topic"),
            (f"delta(kafka_topic_partition_current_offset{{{_TOPIC}}}[5m])/5", "topic"),
            (f"delta(kafka_consumergroup_current_offset{{{_TOPIC}}}[5m])/5", "consumergroup, topic"),
            (f"kafka_topic_partitions{{{_TOPIC}}}", "topic"),
        )
    ),
)
STRIMZI_KAFKA: Final = (
    f"count(kafka_server_replicamanager_leadercount{{{_CLUSTER}}})",
    f"sum(irate(kafka_controller_controllerstats_uncleanleaderelections_total{{{_CLUSTER}}}[5m]))",
    *(
        f"sum({name}{{{_CLUSTER}}})"
        for name in (
            "kafka_controller_kafkacontroller_activecontrollercount",
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "kafka_server_replicamanager_partitioncount",
            "kafka_server_replicamanager_underreplicatedpartitions",
            "kafka_cluster_partition_atminisr",
            "kafka_cluster_partition_underminisr",
        )
    ),
    *(
        f'sum(irate({_BEANS}{name}_total{{{_PODS},{_TOPIC},topic!=""}}[5m]))'
        for name in (
            "bytesin",
            "bytesout",
            "messagesin",
            "totalproducerequests",
            "failedproducerequests",
            "totalfetchrequests",
            "failedfetchrequests",
        )
    ),
    *(
        f"sum({name}{{{_PODS}}}*100) by (kubernetes_pod_name)"
        for name in (
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        )
    ),
    *(
        f"sum(irate(kafka_server_kafkaserver_linux_disk_{way}_bytes{{{_PODS}}}[5m])) by (kubernetes_pod_name)"
        for way in ("write", "read")
    ),
    f"sum(kafka_server_socket_server_metrics_connection_count{{{_PODS}}}) by (kubernetes_pod_name, listener)",
    f'sum(process_open_fds{{{_PODS},container="kafka"}}) by (kubernetes_pod_name)',
    f'kafka_log_log_size{{{_PODS},{_TOPIC},partition=~".+"}}',
    f"kafka_cluster_partition_replicascount{{{_PODS}}}",
)
STRIMZI_EXPORTER: Final = (
    'kafka_broker_info{namespace="kafka"}',
    f"count(kafka_topic_partitions{{{_TOPIC}}})",
    *(
        f"sum({name}{{{_TOPIC}}})"
        for name in (
            "kafka_topic_partitions",
            "kafka_topic_partition_replicas",
            "kafka_topic_partition_in_sync_replica",
            "kafka_topic_partition_under_replicated_partition",
            "kafka_cluster_partition_atminisr",
            "kafka_cluster_partition_underminisr",
        )
    ),
    f"sum(kafka_topic_partition_leader_is_preferred{{{_TOPIC}}} < bool 1)",
    f"sum(rate(kafka_topic_partition_current_offset{{{_TOPIC}}}[5m])) by (topic)",
    f"sum(delta(kafka_consumergroup_current_offset{{{_TOPIC}}}[5m])/300) by (consumergroup, topic)",
    *(
        f"sum({name}{{{_TOPIC}}}) by ({by})"
        for name, by in (
            ("kafka_consumergroup_lag", "consumergroup, topic"),
            ("kafka_consumergroup_current_offset", "consumergroup, partition, topic"),
            ("kafka_consumergroup_lag", "consumergroup, partition, topic"),
            ("kafka_topic_partitions", "topic"),
            ("kafka_topic_partition_current_offset", "partition, topic"),
            ("kafka_topic_partition_oldest_offset", "partition, topic"),
        )
    ),
)
ALL: Final = (*GRAFANA_7589, *STRIMZI_KAFKA, *STRIMZI_EXPORTER)
