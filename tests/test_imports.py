"""The order in which packages may import each other, and who may see protos."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / 'object_detection'

# A package may import those of its own row and of the rows above.
LAYERS = [
    {'protos'},
    {'core'},
    {
        'anchor_generators',
        'box_coders',
        'losses',
        'matchers',
        'resizers',
        'similarities',
        'target_assigners',
    },
    {'models', 'predictors'},
    {'meta_architectures'},
    {'data', 'evaluation', 'visualization'},
    {'builders', 'config'},
    {'dataset_tools', 'export', 'training'},
    {'cli', 'exporter_main_v2', 'model_main_tf2'},
]
# Objects that builders make, though they live beside the loop that uses them.
MADE_BY_BUILDERS = (
    'object_detection.training.loss_scale',
    'object_detection.training.optimizers',
    'object_detection.training.reduction',
    'object_detection.training.schedules',
    # Not made, but handed to detectors, so that `tf.train.Checkpoint` can restore them.
    'object_detection.training.inference_weights',
)
SEE_PROTOS = {'builders', 'cli', 'config', 'dataset_tools', 'export', 'training'}
SEE_PROTOS |= {'exporter_main_v2', 'model_main_tf2'}
CORE_MAY_IMPORT = {'collections', 'dataclasses', 'math', 'numpy', 'tensorflow', 'typing', 'enum'}
CORE_MAY_IMPORT |= {'contextlib', 'contextvars'}
CORE_MAY_IMPORT |= {'contextlib', 'contextvars'}


def modules() -> list[pathlib.Path]:
    files = (path for path in PACKAGE.rglob('*.py') if not path.name.endswith('_pb2.py'))
    return sorted(path for path in files if path.relative_to(PACKAGE).as_posix() != '__init__.py')


def part_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix('.py')


def imported(path: pathlib.Path) -> set[str]:
    """Full names of all modules that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f'{node.module}.{alias.name}' for alias in node.names}
    return names


def layer_of(part: str) -> int:
    (index,) = [i for i, layer in enumerate(LAYERS) if part in layer]
    return index


@pytest.mark.parametrize('path', modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    part = part_of(path)
    for name in imported(path):
        if not name.startswith('object_detection.'):
            continue
        other = name.split('.')[1]
        if other == 'protos':
            allowed = part in SEE_PROTOS or path == PACKAGE / 'data' / 'label_map.py'
            assert allowed or part == 'protos', f'{part} sees protos: {name}'
        elif not (part == 'builders' and name.startswith(MADE_BY_BUILDERS)):
            assert layer_of(other) <= layer_of(part), f'{part} imports {name}'


def test_core_imports_only_tensorflow_and_numpy():
    for path in modules():
        if part_of(path) == 'core':
            others = {name.split('.')[0] for name in imported(path)} - {'object_detection'}
            assert others <= CORE_MAY_IMPORT, f'{path.name}: {sorted(others - CORE_MAY_IMPORT)}'
