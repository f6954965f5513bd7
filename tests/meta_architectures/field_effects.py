"""Sets each field of a model in turn and compares what is built and traced of it.

The fields are those of the descriptors, also below messages that the model does not set. The effect
of a field is seen in the graph of all stages with the initial values and penalties, if need be as
XLA compiles them, in the variables and in what the family asks of data.
"""

import functools
import gc
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest import mock

import keras
import tensorflow as tf
from google.protobuf.message import Message

from object_detection.builders import hyperparams_builder, model_builder
from object_detection.builders.input_readers import channels
from object_detection.config import families, ranges, reading
from object_detection.core import tracing as tracing_scopes
from object_detection.meta_architectures import tracing
from object_detection.models import image_channels
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.system import private_names
from tests.field_variants import Variant

# Attributes of nodes that differ from one trace to the next.
_PROCESS_NAMES = ('shared_name', 'container', 'debug_name')
# Errors that name other fields alone.
_UNNAMED = 'unnamed'


class Outcome(NamedTuple):
    """What becomes of a model: digests of its stages, or errors; and the warnings."""

    digests: list[str]
    errors: list[str]
    warnings: list[str]


class _TracedError(Exception):
    """Ends a trace whose effect is known."""


class _Digests(list[str]):
    """Digests of stages; one that differs from the known digest ends the trace."""

    def __init__(self, known: Sequence[str]):
        super().__init__()
        self._known = known

    def add(self, *texts: str) -> None:
        self.append(' '.join(texts))
        if self._known and self[-1] != self._known[len(self) - 1]:
            raise _TracedError

    def add_graph(self) -> None:
        graph = tf.compat.v1.get_default_graph().as_graph_def()
        # Functions stand in the order of names, which end with numbers of the process.
        functions = sorted(_digest(each.node_def) for each in graph.library.function)
        self.add(_digest(graph.node), *functions)


def outcome(model: DetectionModel, known: Sequence[str] = ()) -> Outcome:
    """Returns what becomes of a model; the same one gives the same digests.

    Args:
      model: the model.
      known: digests of another model; none are returned after the first that differs.
    """
    found = ranges.find(model, path='model')
    view = reading.tracked(model, 'model')
    family, options = families.find(view), families.options(view)
    plain = families.options(model)
    errors = [*found.errors, *family.rules(plain), *hyperparams_builder.problems(model, 'model')]
    if errors:
        return Outcome([], errors, [])
    family.loss_names(options)
    digests = _Digests(known)
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    try:
        digests.add(str(family.needs(options)))
        with private_names.graph_without_values():
            _trace(view, digests)
    except _TracedError:
        pass
    except ValueError as error:
        return Outcome([], [reading.located(options, str(error))], [])
    warnings = [path for paths in found.warnings.values() for path in paths]
    warnings += [path for path, _ in reading.unread(view)]
    warnings += [*family.warnings(plain, True), *family.warnings(plain, False)]
    return Outcome(list(digests), [], warnings)


def _trace(view: DetectionModel, digests: _Digests) -> None:
    with image_channels.scope(1 if channels.is_grey(reading.plain(view)) else image_channels.RGB):
        values: list[str] = []
        with tf.variable_creator_scope(functools.partial(_noting_value, values)):
            detector = model_builder.build(view)
            detector.build_variables()
    detector.regularization_losses()
    digests.add(*values)
    digests.add(*detector.named_trainable_variables(), str(detector.side_inputs()))
    digests.add(*(f'{name} {of.shape}' for name, of in detector.named_variables().items()))
    seed, image = (tf.compat.v1.placeholder(tf.int32, shape) for shape in ([2], [None, None, 3]))
    detector.resizer.for_training(seed)(image)
    digests.add_graph()
    loss = detector.loss

    def noted_loss(*arguments: Any) -> Any:
        digests.add(*sorted(detector.exported_predictions(arguments[0])))
        digests.add_graph()
        return loss(*arguments)

    mask_size = families.needs(reading.plain(view)).example_options.get('mask_crop_size', 0)
    step = tf.compat.v1.placeholder(tf.int64, [])  # of a training
    with mock.patch.object(detector, 'loss', noted_loss), tracing_scopes.training_step(step):
        tracing.trace(detector, mask_size)
    digests.add_graph()


def _noting_value(values: list[str], next_creator: Any, **options: Any) -> tf.Variable:
    """Notes the initial value of a variable, which Keras may make in a graph of its own."""
    value = options['initial_value']
    value = tf.convert_to_tensor(value() if callable(value) else value, options.get('dtype'))
    if not tf.is_symbolic_tensor(value):
        values.append(hashlib.sha256(value.numpy().tobytes()).hexdigest())
    else:
        values.append(_digest(op.node_def for op in _made_of(value.op)))
    return next_creator(**options | {'initial_value': value})


def _made_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns an operation and all that its inputs are made of, each once."""
    ops, seen, left = [], set(), [op]
    while left:
        op = left.pop()
        if op.name not in seen:
            seen.add(op.name)
            ops.append(op)
            left += [each.op for each in op.inputs]
    return ops


def _digest(nodes: Iterable[Any]) -> str:
    """Returns a digest of the operations of a graph, which have numbers instead of names."""
    digest, numbers = hashlib.sha256(), {}
    for node in nodes:
        for name in (node.name, *node.input):
            base, *output = name.removeprefix('^').split(':', 1)
            number = numbers.setdefault(base, len(numbers))
            digest.update(f'{name[0] == "^"} {number} {output} '.encode())
        digest.update(f'{node.op} {getattr(node, "device", "")}'.encode())
        for name, value in sorted(node.attr.items()):
            is_of_process = value.func.name or name in _PROCESS_NAMES or name.startswith('_')
            if not is_of_process:
                digest.update(name.encode() + value.SerializeToString(deterministic=True))
    return digest.hexdigest()


def effects(all_fields: Iterator[list[Variant]]) -> Iterator[tuple[str, str]]:
    """Yields the place of each field of models, and the effect of its values.

    The effect is 'changed' or 'warned' if, for some value, the outcome has another digest or a
    warning names the field; 'refused' if all values are errors, one of which names it; 'no base' if
    the model cannot be built with or without it; 'empty' for an empty message without an effect;
    and '' if nothing is seen.
    """
    outcomes: dict[bytes, Outcome] = {}

    def known(model: Message) -> Outcome:
        key = model.SerializeToString(deterministic=True)
        if key not in outcomes:
            outcomes[key] = outcome(model)
        return outcomes[key]

    gc.freeze()  # `clear_session` collects garbage
    for of_field in all_fields:
        yield of_field[0].place, _effect_of_field(of_field, known(of_field[0].base))
    gc.unfreeze()


def _forms_for_xla() -> AbstractContextManager[object]:
    """What is traced takes the forms that XLA compiles."""
    return mock.patch.object(private_names, 'is_compiled_by_xla', return_value=True)


def _effect_of_field(of_field: list[Variant], base: Outcome) -> str:
    seen = []
    for variant in of_field:
        seen.append(_effect(variant, base, outcome(variant.root, base.digests)))
        if seen[-1] in ('changed', 'warned'):
            return seen[-1]
    is_empty = of_field[0].is_empty
    if '' in seen and not base.errors and not is_empty:
        with _forms_for_xla():
            base = outcome(of_field[0].base)
            found = (outcome(variant.root, base.digests) for variant in of_field)
            if 'changed' in map(_effect, of_field, itertools.repeat(base), found):
                return 'changed'
    if '' in seen:
        return 'empty' if is_empty else ''
    return 'refused' if 'refused' in seen else '' if _UNNAMED in seen else 'no base'


def _effect(variant: Variant, base: Outcome, found: Outcome) -> str:
    is_named = re.compile(rf'\b{variant.field}\b').search
    if found.errors:
        new = [error for error in found.errors if error not in base.errors]
        return 'no base' if not new else 'refused' if any(map(is_named, new)) else _UNNAMED
    if found.digests != base.digests:
        return 'changed'
    new = [warning for warning in found.warnings if warning not in base.warnings]
    place = f'model.{variant.place}'
    parents = {place[:end] for end in range(len(place) + 1)}
    # The default of the schema is no news where the base is warned of another value.
    is_listed = parents & {*found.warnings, *base.warnings}
    return 'warned' if is_listed or any(map(is_named, new)) else ''
