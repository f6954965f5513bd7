"""The side inputs of an export as flags name them; loads no TensorFlow before they are resolved."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from object_detection.config import report
from object_detection.errors import UserError, expected

if TYPE_CHECKING:
    import tensorflow as tf

    from object_detection.meta_architectures.detection_model import DetectionModel

_FLAGS = '--side_input_names, --side_input_shapes and --side_input_types'


class GivenSideInput(NamedTuple):
    """A side input as the flags of an exporter describe it.

    Attributes:
      name: name in the signature, and of the argument of the detector's `predict`.
      shape: shape with the axis of images; None for an axis of any size.
      dtype: name of a type, such as 'float32'.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str


def parse(names: str, shapes: str, types: str) -> list[GivenSideInput]:
    """Parses the flags of the reference's exporter.

    Args:
      names: 'context_features,valid_context_size'.
      shapes: '1,2000,2057/1', a shape for each name; -1 for an axis of any size.
      types: 'tf.float32,tf.int32', a type for each name; 'tf.' may be left out.

    Raises:
      UserError: if one is empty or no list of that form, or their lengths differ.
    """
    lists = (names.split(','), shapes.split('/'), types.split(','))
    if not all((names, shapes, types)) or len(set(map(len, lists))) > 1:
        raise expected(
            _FLAGS, 'one entry for each side input', f'{names!r}, {shapes!r} and {types!r}'
        )
    try:
        sizes = [tuple(int(size) for size in shape.split(',')) for shape in lists[1]]
        if any(size < 1 and size != -1 for shape in sizes for size in shape):
            raise ValueError
    except ValueError as error:
        raise UserError(
            "--side_input_shapes: expected numbers such as '1,2000,2057/1', each at least 1, "
            f'or -1. Received: {shapes!r}.'
        ) from error
    return [
        GivenSideInput(
            name.strip(),
            tuple(None if size < 0 else size for size in shape),
            type_.strip().removeprefix('tf.'),
        )
        for name, shape, type_ in zip(lists[0], sizes, lists[2], strict=True)
    ]


def resolve(
    detector: 'DetectionModel', given: Sequence[GivenSideInput] | None
) -> list['tf.TensorSpec']:
    """Returns the specs of the side inputs of a signature.

    Args:
      detector: the detector, which says what it takes.
      given: shapes, which may fix free axes, in the order of the signature; None takes all from
        the detector.

    Raises:
      UserError: if the detector takes other side inputs, or of other shapes or types.
    """
    import tensorflow as tf

    from object_detection.meta_architectures import side_inputs

    own = detector.side_inputs()
    if given is None:
        return [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in own.items()]
    side_inputs.check(detector, [each.name for each in given], 'Export')
    specs = []
    for each in given:
        expected = own[each.name]
        if each.dtype != expected.dtype.name or not expected.shape.is_compatible_with(each.shape):
            raise UserError(
                f'Export: expected the side input {each.name} as {expected.dtype.name} '
                f'{expected.shape.as_list()}. Received: {each.dtype} {list(each.shape)}.'
            )
        shape = expected.shape.merge_with(each.shape)
        specs.append(tf.TensorSpec(shape, expected.dtype, each.name))
    return specs


def check_names(given: Collection[str], known: Collection[str], where: str) -> None:
    """Refuses side inputs that a model does not take.

    Raises:
      UserError: which names them.
    """
    others = [name for name in given if name not in known]
    if others:
        raise expected(where, f'side inputs of {", ".join(known) or "(none)"}', ', '.join(others))


def or_zeros(
    given: Mapping[str, 'tf.Tensor'], specs: Mapping[str, 'tf.TensorSpec'], count: int
) -> dict[str, 'tf.Tensor']:
    """Returns each side input of `count` images; zeros, with a warning, if none are given.

    Args:
      given: name -> value [count, ...].
      specs: name -> spec of what the model takes.
      count: number of images.

    Raises:
      UserError: if only some are given.
    """
    import tensorflow as tf

    missing = [name for name in specs if name not in given]
    if missing and given:
        raise expected(
            'Side inputs', f'{", ".join(missing)} with {", ".join(given)}', 'the latter alone'
        )
    if missing:
        report.current().warn(
            f'The model takes {", ".join(missing)} with the images. None are given: it runs as for '
            'images without a context.'
        )
    sizes = {name: [size or 1 for size in specs[name].shape[1:]] for name in missing}
    return {
        name: given[name] if name in given else tf.zeros([count, *sizes[name]], spec.dtype)
        for name, spec in specs.items()
    }
