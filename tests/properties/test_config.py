"""Any text is a setting or is refused with a reason, and what is accepted can be read back."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.model.config.broker import BrokerConfig
from barnabas.model.config.keys.all_keys import BROKER_KEYS, TOPIC_KEYS
from barnabas.model.config.properties import parse_properties
from barnabas.model.config.topic import check_overrides, resolve
from barnabas.model.errors import ConfigError, InvalidConfig
from barnabas.model.log_config import LogConfig

DEFAULTS = BrokerConfig.load({})


@given(st.floats(allow_nan=False))
def test_a_written_number_is_read_back(value: float) -> None:
    key = BROKER_KEYS["log.cleaner.io.max.bytes.per.second"]
    text = key.write(value)
    assert text is not None
    assert key.read(text) == value


@given(st.sampled_from(sorted(BROKER_KEYS)), st.text(max_size=20))
@example("log.cleaner.io.buffer.load.factor", "NaN")
def test_any_text_is_a_value_or_a_complaint_that_names_the_key(name: str, text: str) -> None:
    key = BROKER_KEYS[name]
    try:
        value = key.parse(text)
    except InvalidConfig as error:
        assert name in str(error)
    else:
        written = key.write(value)
        assert written is not None
        again = key.parse(written)
        assert again == value or written == "NaN"  # which equals nothing, not even itself
        assert key.write(again) == written


def _escaped(text: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H"))


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.dictionaries(WORDS, WORDS, max_size=4))
def test_everything_can_be_written_in_escapes(properties: dict[str, str]) -> None:
    text = "\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


PLAIN = st.text(st.sampled_from("abc.-_/:=#! é"), min_size=1, max_size=12).map(lambda text: f"x{text}x")


@given(st.lists(st.tuples(st.from_regex(r"[a-z][a-z.]{0,9}", fullmatch=True), PLAIN), max_size=6), st.integers(0, 60))
def test_a_line_may_be_broken_anywhere_in_its_value(settings: list[tuple[str, str]], place: int) -> None:
    lines = []
    for key, value in settings:
        cut = min(place, len(value))
        rest = value[cut:]
        if rest[:1].isspace():
            lines.append(f"{key}={value}")
        else:
            lines.append(f"{key}={value[:cut]}\\\n   \t{rest}")
    assert parse_properties("\n".join(lines)) == dict(settings)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        properties = parse_properties(text)
    except ConfigError:
        assert "\\u" in text
    else:
        assert all(isinstance(part, str) for pair in properties.items() for part in pair)


@given(st.dictionaries(st.sampled_from(sorted(BROKER_KEYS)) | st.text(max_size=12), st.text(max_size=12), max_size=4))
def test_any_properties_are_taken_or_refused_with_a_reason(properties: dict[str, str]) -> None:
    try:
        config = BrokerConfig.load(properties)
    except ConfigError as error:
        assert len(str(error)) > 20
    else:
        assert properties.items() <= config.given.items() | {("broker.id", properties.get("broker.id", ""))}
        assert config.listeners
        assert config.log_dirs


@given(st.dictionaries(st.sampled_from(sorted(TOPIC_KEYS)), st.integers(0, 2**31 - 1).map(str), max_size=5))
def test_what_is_accepted_can_be_resolved(overrides: dict[str, str]) -> None:
    try:
        check_overrides(overrides, DEFAULTS)
    except InvalidConfig:
        return
    config = resolve(overrides, DEFAULTS)
    for name in overrides:
        field = name.replace(".", "_")
        if field in LogConfig.__slots__ and name != "segment.bytes":
            assert getattr(config, field) == TOPIC_KEYS[name].parse(overrides[name])
