"""Names of the Inception-ResNet v2 layers that `keras.applications` merely numbers."""

from collections.abc import Iterator

# Block -> number of convolutions of each of its branches.
_BLOCK35, _BLOCK17, _BLOCK8 = (1, 2, 3), (1, 3), (1, 3)
_BLOCKS = (
    ('mixed_5b', (1, 2, 3, 1)),
    *((f'block35_{i}', _BLOCK35) for i in range(1, 11)),
    ('mixed_6a', (1, 3)),
    *((f'block17_{i}', _BLOCK17) for i in range(1, 21)),
    ('mixed_7a', (2, 2, 3)),
    *((f'block8_{i}', _BLOCK8) for i in range(1, 11)),
)


def numbered_convolutions() -> Iterator[str]:
    """Yields our names of those convolutions in the order that Keras makes them in.

    The norm that follows one has the suffix `_bn`, and the same position among the norms.
    """
    yield from ('conv_1a', 'conv_2a', 'conv_2b', 'conv_3b', 'conv_4a')
    for block, branches in _BLOCKS:
        for branch, count in enumerate(branches):
            yield from (f'{block}_branch{branch}_{i}' for i in range(1, count + 1))
