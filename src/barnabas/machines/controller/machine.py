"""The controller as a machine: requests in, changes and answers out; no I/O, no clock.

`handle` never changes anything: the shell stores an outcome's changes and hands them back to `replay`. If the store
refuses them because someone else wrote, the shell loads the tree, makes a new machine of it, and asks again.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.machines.controller.changes import (
    Change,
    ConfigChanged,
    TopicChanged,
    apply,
)
from barnabas.machines.controller.decision import UNCLEAN, Answer, Decision, Key
from barnabas.machines.controller.elections import move
from barnabas.machines.controller.features import new_features, update_features
from barnabas.machines.controller.image import EMPTY, ClusterImage, ConfigResource, TopicImage
from barnabas.machines.controller.in_sync import alter_isr
from barnabas.machines.controller.leaders import elect_leaders, elect_where_allowed
from barnabas.machines.controller.membership import forget, log_dir_failed, registered, shut_down
from barnabas.machines.controller.names import collision_key
from barnabas.machines.controller.reassignment import reassign
from barnabas.machines.controller.requests import (
    AlterConfigs,
    AlterIsr,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    EditConfigs,
    ElectLeaders,
    ForgetBroker,
    LogDirFailed,
    MoveLeader,
    Reassign,
    Registered,
    Request,
    ShutDown,
    TopicToCreate,
    UpdateFeatures,
)
from barnabas.machines.controller.topics import (
    TopicDefaults,
    check_may_grow,
    check_new_name,
    check_partition_limit,
    more_partitions,
    new_topic,
    requested_partitions,
)
from barnabas.machines.outcome import Outcome
from barnabas.model.errors import (
    ApiError,
    InvalidRequest,
    InvalidTopic,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model.ids import NO_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

__all__ = ["Answer", "ControllerMachine", "Key"]


class ControllerMachine:
    """Decides for the cluster that `image` shows; topic ids come from `new_id`."""

    def __init__(self, image: ClusterImage, defaults: TopicDefaults, new_id: Callable[[], UUID]) -> None:
        self._image = image
        self._defaults = defaults
        self._new_id = new_id
        self._collisions = {key: name for name in image.topics if (key := collision_key(name)) is not None}
        self._partitions = sum(len(topic.partitions) for topic in image.topics.values())

    @property
    def image(self) -> ClusterImage:
        """The cluster with all replayed changes."""
        return self._image

    def handle(self, request: Request) -> Outcome[Change, Key, Answer]:
        """Decide; replies are keyed by what the request names: topics, resources, partitions, a broker, features."""
        match request:
            case CreateTopics():
                return self._create_topics(request)
            case DeleteTopics():
                return self._delete_topics(request)
            case CreatePartitions():
                return self._create_partitions(request)
        decision = Decision(self._image, unclean_default=self._defaults.unclean_elections)
        match request:
            case AlterConfigs():
                self._alter_configs(decision, request)
            case EditConfigs():
                self._edit_configs(decision, request)
            case Registered():
                self._registered(decision, request)
            case AlterIsr():
                alter_isr(decision, request)
            case ElectLeaders():
                elect_leaders(decision, request)
            case Reassign():
                reassign(decision, request)
            case ShutDown():
                shut_down(decision, request)
            case LogDirFailed():
                log_dir_failed(decision, request)
            case ForgetBroker():
                forget(decision, request)
            case MoveLeader():
                self._move_leader(decision, request)
            case UpdateFeatures():
                update_features(decision, request)
        return decision.outcome()

    def replay(self, changes: Iterable[Change]) -> None:
        """Take over changes that are stored."""
        changes = tuple(changes)
        self._image = apply(self._image, changes)
        for change in changes:
            if isinstance(change, TopicChanged):
                self._count(change.before, -1)
                self._count(change.after, 1)

    def _count(self, topic: TopicImage | None, sign: int) -> None:
        if topic is None:
            return
        self._partitions += sign * len(topic.partitions)
        key = collision_key(topic.name)
        if key is not None and sign > 0:
            self._collisions[key] = topic.name
        elif key is not None:
            self._collisions.pop(key, None)

    def _create_topics(self, request: CreateTopics) -> Outcome[Change, Key, Answer]:
        names = [topic.name for topic in request.topics]
        answers: dict[Key, Answer] = _repeated(names)
        changes: list[Change] = []
        taken = ChainMap[str, str]({}, self._collisions)
        turn = self._partitions
        try:
            check_partition_limit(requested_partitions(topic, self._defaults) for topic in request.topics)
        except ApiError as error:
            return _refuse_all(names, error)
        for topic in request.topics:
            if topic.name in answers:
                continue
            try:
                self._check_name(topic.name, taken)
                if topic.config_error is not None:
                    raise topic.config_error
                made = new_topic(topic, self._new_id(), self._image.assignable, self._up(), self._defaults, turn)
            except ApiError as error:
                answers[topic.name] = error
                continue
            turn += len(made.partitions)
            if (key := collision_key(topic.name)) is not None:
                taken[key] = topic.name
            answers[topic.name] = made
            changes += self._creation(topic, made)
        return _outcome([] if request.validate_only else changes, answers)

    def _check_name(self, name: str, taken: Mapping[str, str]) -> None:
        check_new_name(name)
        if name in self._image.topics:
            raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        key = collision_key(name)
        if key is not None and key in taken:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {taken[key]}")

    def _creation(self, topic: TopicToCreate, made: TopicImage) -> list[Change]:
        """Configuration first: a topic whose creation was cut short by a crash then has its settings."""
        resource = ConfigResource.topic(topic.name)
        settings = ConfigChanged(resource, self._image.configs.get(resource), dict(topic.configs))
        return [settings, TopicChanged(None, made)]

    def _delete_topics(self, request: DeleteTopics) -> Outcome[Change, Key, Answer]:
        answers: dict[Key, Answer] = _repeated(request.names)
        changes: list[Change] = []
        for name in request.names:
            if name in answers:
                continue
            topic = self._image.topics.get(name)
            if topic is None:
                answers[name] = UnknownTopicOrPartition(f"There is no topic '{name}'.")
                continue
            if request.ids.get(name, topic.topic_id) != topic.topic_id:
                answers[name] = UnknownTopicId("This server does not host this topic ID.")
                continue
            answers[name] = topic
            resource = ConfigResource.topic(name)
            changes += [TopicChanged(topic, None), ConfigChanged(resource, self._image.configs.get(resource), None)]
        return _outcome(changes, answers)

    def _create_partitions(self, request: CreatePartitions) -> Outcome[Change, Key, Answer]:
        names = [topic.name for topic in request.topics]
        answers: dict[Key, Answer] = _repeated(names)
        changes: list[Change] = []
        try:
            check_partition_limit(
                topic.count - len(known.partitions)
                for topic in request.topics
                if (known := self._image.topics.get(topic.name)) is not None and topic.count > len(known.partitions)
            )
        except ApiError as error:
            return _refuse_all(names, error)
        for topic in request.topics:
            if topic.name in answers:
                continue
            present = self._image.topics.get(topic.name)
            try:
                check_may_grow(topic.name)
                if present is None:
                    raise UnknownTopicOrPartition(f"There is no topic '{topic.name}'.")
                extended = more_partitions(present, topic, self._image.assignable, self._up())
            except ApiError as error:
                answers[topic.name] = error
                continue
            answers[topic.name] = extended
            changes.append(TopicChanged(present, extended))
        return _outcome([] if request.validate_only else changes, answers)

    def _alter_configs(self, decision: Decision, request: AlterConfigs) -> None:
        """Settings that allow an unclean election have it held at once.

        A user comes before what is set for client ids of that user, below it in the tree.
        """
        changes: list[Change] = []
        missing = {
            user: EMPTY
            for one in request.settings
            if one.client_id is not None and (user := ConfigResource.user(one.name)) not in self._image.configs
        }
        wanted = sorted({**missing, **request.settings}.items(), key=lambda item: item[0].client_id is not None)
        for resource, settings in wanted:
            if resource.kind == "topics" and resource.name not in self._image.topics:
                decision.answers[resource] = UnknownTopicOrPartition(f"There is no topic '{resource.name}'.")
                continue
            decision.answers[resource] = None
            changes.append(ConfigChanged(resource, self._image.configs.get(resource), dict(settings)))
        decision.assume(*changes)
        if any(settings.get(UNCLEAN, "").lower() == "true" for settings in request.settings.values()):
            elect_where_allowed(decision)

    def _edit_configs(self, decision: Decision, request: EditConfigs) -> None:
        """Settings that stay as they are are not written."""
        settings: dict[ConfigResource, dict[str, str]] = {}
        for resource, edit in request.edits.items():
            before = self._image.config(resource)
            try:
                after = edit(before)
            except ApiError as error:
                decision.answers[resource] = error
                continue
            decision.answers[resource] = None
            if after != before:
                settings[resource] = after
        self._alter_configs(decision, AlterConfigs(settings))

    def _registered(self, decision: Decision, request: Registered) -> None:
        """Topics that Kafka made before it gave out ids get one."""
        for topic in self._image.topics.values():
            if topic.topic_id == NO_ID:
                decision.assume(TopicChanged(topic, replace(topic, topic_id=self._new_id())))
        registered(decision, request)
        decision.assume(*new_features(self._image, request.brokers.values()))

    def _move_leader(self, decision: Decision, request: MoveLeader) -> None:
        name, index = request.topic, request.partition
        topic, partition = self._image.topic(name), self._image.partition(name, index)
        if topic is None or partition is None:
            decision.answers[name] = UnknownTopicOrPartition(f"There is no partition {index} of topic '{name}'.")
            return
        partitions = list(topic.partitions)
        partitions[index] = move(partition, decision.live(name, index))
        decision.put(name, partitions[index])
        decision.answers[name] = replace(topic, partitions=tuple(partitions))

    def _up(self) -> frozenset[int]:
        """Who may lead a new partition."""
        up = frozenset(self._image.brokers)
        return up - self._image.leaving or up


def _outcome(changes: list[Change], answers: dict[Key, Answer]) -> Outcome[Change, Key, Answer]:
    return Outcome(changes=tuple(changes), replies=tuple(answers.items()))


def _refuse_all(names: Iterable[str], error: ApiError) -> Outcome[Change, Key, Answer]:
    return _outcome([], dict.fromkeys(names, error))


def _repeated(names: Sequence[str]) -> dict[Key, Answer]:
    """A name that one request has twice is refused: it is not clear which is meant."""
    return {name: InvalidRequest("Duplicate topic name.") for name, times in Counter(names).items() if times > 1}
