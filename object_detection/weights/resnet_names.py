"""Names of ResNet layers, `conv4_block2_3_conv`, in our backbones and in weights files.

The stages of a detector lie in its part `backbone`, and the fifth one in `box_classifier` where it
runs on crops; an image classifier has them all in one.
"""

import re
from collections.abc import Collection, Iterable, Iterator

PARTS = ('backbone', 'box_classifier')

# Depth by the blocks of the stages 2-5, and whether they are bottlenecks.
_DEPTHS = {
    ((2, 2, 2, 2), False): 18,
    ((3, 4, 6, 3), False): 34,
    ((3, 4, 6, 3), True): 50,
    ((3, 4, 23, 3), True): 101,
    ((3, 8, 36, 3), True): 152,
    ((3, 24, 36, 3), True): 200,
}
_BLOCK = re.compile(r'/conv(\d)_block(\d+)_(\d)_conv/')


def place(layer_path: str, names: Collection[str]) -> str:
    """Returns the name in a detector of a layer's variable.

    Args:
      layer_path: 'conv5_block1_1_conv/kernel'.
      names: of the detector's variables.

    Returns:
      The one of `names` that has it, else its name in a backbone that has it.
    """
    candidates = [f'{part}/{layer_path}' for part in PARTS]
    return next((name for name in candidates if name in names), candidates[0])


def bottleneck_layers(num_convolutions: int, *, shortcut_first: bool = False) -> Iterator[str]:
    """Yields the layers of a bottleneck ResNet in the order that they are numbered in.

    Args:
      num_convolutions: of the whole network; nothing is yielded where no ResNet has so many.
      shortcut_first: whether a stage begins with its shortcut; in Keras it is the third.
    """
    first_block = (0, 1, 2, 3) if shortcut_first else (1, 2, 0, 3)
    for (blocks, has_bottlenecks), _ in _DEPTHS.items():
        # Three a block, a shortcut a stage, and the first one.
        if has_bottlenecks and 3 * sum(blocks) + len(blocks) + 1 == num_convolutions:
            yield 'conv1'
            for stage, count in enumerate(blocks, start=2):
                for block in range(1, count + 1):
                    order = first_block if block == 1 else (1, 2, 3)
                    yield from (f'conv{stage}_block{block}_{i}' for i in order)


def differing_backbones(here: Iterable[str], there: Iterable[str]) -> tuple[str, str] | None:
    """Describes two backbones whose common stages have other blocks; None if they agree.

    Args:
      here, there: names of variables, such as 'backbone/conv4_block2_3_conv/kernel'.
    """
    (stages, bottleneck), (other_stages, other_bottleneck) = _blocks(here), _blocks(there)
    common = stages.keys() & other_stages.keys()
    same = all(stages[stage] == other_stages[stage] for stage in common)
    if not common or (same and bottleneck == other_bottleneck):
        return None
    return _describe(stages, bottleneck), _describe(other_stages, other_bottleneck)


def _blocks(names: Iterable[str]) -> tuple[dict[int, int], bool]:
    """Stage -> number of blocks, and whether the blocks are bottlenecks."""
    found = [match for name in names if (match := _BLOCK.search(name))]
    stages: dict[int, int] = {}
    for match in found:
        stage, block, _ = map(int, match.groups())
        stages[stage] = max(stages.get(stage, 0), block)
    return stages, any(match.group(3) == '3' for match in found)


def _describe(stages: dict[int, int], bottleneck: bool) -> str:
    counts = tuple(stages[stage] for stage in sorted(stages))
    blocks = f'{", ".join(map(str, counts))} {"bottleneck" if bottleneck else "basic"} blocks'
    for (known, has_bottlenecks), depth in _DEPTHS.items():
        if has_bottlenecks == bottleneck and known[: len(counts)] == counts and len(counts) > 2:
            return f'ResNet-{depth} ({blocks})'
    return f'a ResNet of {blocks}'
