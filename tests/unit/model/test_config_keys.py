"""The tables of keys, and the page made of them."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.model.config.definition import Mode, Support
from barnabas.model.config.keys import group_keys, sentences
from barnabas.model.config.keys.all_keys import BROKER_KEYS, OF_THE_AUTHORIZER, TOPIC_KEYS, of_one_listener
from barnabas.model.config.keys.topic_keys import SYNONYMS
from barnabas.model.config.page import page

ROOT = Path(__file__).parents[3]
KEYS = ROOT / "src" / "barnabas" / "model" / "config" / "keys"


def test_the_page_says_what_the_tables_say() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert text == page(), "run: python -m barnabas.model.config.page > docs/configuration.md"


def test_every_key_of_kafka_is_there() -> None:
    shown = [key for key in BROKER_KEYS.values() if key.support is not Support.OWN and not key.hidden]
    assert len(shown) == 342 + len(OF_THE_AUTHORIZER)
    assert len([key for key in BROKER_KEYS.values() if key.support is Support.RETIRED]) == 21
    assert len([key for key in TOPIC_KEYS.values() if not key.hidden]) == 34


def test_every_sentence_is_about_a_key() -> None:
    assert sentences.BROKER.keys() <= BROKER_KEYS.keys()
    assert sentences.TOPIC.keys() <= TOPIC_KEYS.keys()


def test_what_is_described_is_honoured() -> None:
    assert BROKER_KEYS["num.partitions"].support is Support.HONOURED
    assert BROKER_KEYS["ssl.provider"].support is Support.IGNORED
    assert BROKER_KEYS["zookeeper.ssl.crl.enable"].support is Support.RETIRED
    assert BROKER_KEYS["metadata.store"].support is Support.OWN


def _source(*left_out: str) -> str:
    files = (ROOT / "src").rglob("*.py")
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.name not in left_out)


def test_what_is_described_is_read_somewhere() -> None:
    tables = [path.name for path in KEYS.glob("*.py")]
    text = _source(*tables, "settings.py")
    bounds = {name for names in group_keys.BOUNDS.values() for name in names if name}
    of_logs = {name for topic_key in sentences.TOPIC for name, _ in SYNONYMS.get(topic_key, ())}
    own = {name for name, key in BROKER_KEYS.items() if key.support is Support.OWN}
    described = (sentences.BROKER.keys() | own | group_keys.SENTENCES.keys()) - of_logs - bounds
    unread = [name for name in described if f'"{name}"' not in text]
    assert unread == [], "either read these keys or take their sentences out"
    fields = [name for name in sentences.TOPIC if f".{name.replace('.', '_')}" not in text]
    assert fields == ["internal.segment.bytes"]


def test_what_is_read_is_described() -> None:
    asked = re.findall(r'(?:number|flag|text|ratio|items)(?:_or_none)?\("([a-z.]+)"\)', _source())
    undescribed = {name for name in asked if name in BROKER_KEYS and BROKER_KEYS[name].support is Support.IGNORED}
    assert undescribed == set(), "describe these keys in sentences.py"


def test_a_topic_key_and_its_broker_keys_are_of_one_mind() -> None:
    for name, synonyms in SYNONYMS.items():
        topic_key = TOPIC_KEYS[name]
        strongest, weakest = BROKER_KEYS[synonyms[0][0]], BROKER_KEYS[synonyms[-1][0]]
        assert strongest.type is topic_key.type, name
        assert strongest.mode is Mode.CLUSTER_WIDE, name
        unit = synonyms[-1][1]
        assert topic_key.default == (weakest.default if unit == 1 else int(str(weakest.default)) * unit), name


def test_a_name_of_one_listener_is_told_apart() -> None:
    assert of_one_listener("listener.name.internal.max.connections") == "max.connections"
    assert of_one_listener("max.connections") is None
    assert of_one_listener("listener.name.internal.plain.sasl.jaas.config") == "sasl.jaas.config"
    assert of_one_listener("listener.name.internal.no.mechanism.sasl.jaas.config") == "sasl.jaas.config"
