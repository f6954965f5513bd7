"""Modules that load no TensorFlow, which takes seconds: `--help` and light commands need these."""

import ast
import functools
import pathlib
from collections.abc import Iterator

from tests.test_imports import PACKAGE, ROOT

HEAVY = {'keras', 'tensorflow', 'tf_slim'}
# Extras install these; commands name the extra where one is missing.
OPTIONAL = {
    'ai_edge_litert',
    'av',
    'fastapi',
    'h11',
    'mlflow',
    'onnx',
    'onnxruntime',
    'openvino',
    'prometheus_client',
    'scipy',
    'starlette',
    'supervision',
    'tf2onnx',
    'trackers',
    'uvicorn',
    'wandb',
}
# Commands import these when they run, before or without TensorFlow.
USED_BY_COMMANDS = [
    'object_detection.dataset_tools.coco_split',
    'object_detection.dataset_tools.context_rcnn.camera_traps',
    'object_detection.dataset_tools.context_rcnn.context',
    'object_detection.dataset_tools.context_rcnn.record_job',
    'object_detection.dataset_tools.converters.conversion',
    'object_detection.dataset_tools.converters.conversion_report',
    'object_detection.dataset_tools.data_statistics',
    'object_detection.dataset_tools.downloads.archives',
    'object_detection.dataset_tools.downloads.coco_download',
    'object_detection.dataset_tools.downloads.download',
    'object_detection.dataset_tools.downloads.known_files',
    'object_detection.dataset_tools.downloads.published_detectors',
    'object_detection.dataset_tools.inspection.check_command',
    'object_detection.dataset_tools.inspection.record_sets',
    'object_detection.dataset_tools.inspection.record_split',
    'object_detection.dataset_tools.starter',
    'object_detection.dataset_tools.starter_parts',
    'object_detection.dataset_tools.starter_weights',
    'object_detection.meta_architectures.detr.transformers_pipeline',
    'object_detection.models.image_channels',
    'object_detection.scoring.csv_tables',
    'object_detection.scoring.evaluation',
    'object_detection.scoring.report',
    'object_detection.training.monitoring.step_program',
]


def name_of(path: pathlib.Path) -> str:
    """The name by which a file is imported."""
    return '.'.join(path.relative_to(ROOT).with_suffix('').parts).removesuffix('.__init__')


MODULES = {name_of(path): path for path in PACKAGE.rglob('*.py')}


def statements(nodes: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when a file is imported: those outside of functions."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test) == 'TYPE_CHECKING':
            yield from statements(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from statements([n for n in ast.iter_child_nodes(node) if _holds_statements(n)])


def _holds_statements(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case)


@functools.cache
def loaded(name: str) -> frozenset[str]:
    """Names of the modules that a module of this package imports at once, with their packages."""
    found = set()
    for node in statements(ast.parse(MODULES[name].read_text()).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            full = {f'{node.module}.{alias.name}' for alias in node.names}
            found |= {each if each in MODULES else node.module for each in full}
    parents = {each.rpartition('.')[0] for each in [*found, name]}
    return frozenset(found | parents - {''})


def way_to(packages: set[str], name: str) -> list[str]:
    """The modules by which a module loads a package, one importing the next; [] if it does not."""
    ways, seen = [[name]], {name}
    while ways:
        way = ways.pop(0)
        if way[-1].partition('.')[0] in packages:
            return way
        fresh = loaded(way[-1]) - seen if way[-1] in MODULES else set()
        seen |= fresh
        ways += [[*way, each] for each in sorted(fresh)]
    return []


def test_commands_load_no_tensorflow_before_they_need_it():
    commands = [name for name in MODULES if name.startswith('object_detection.cli')]
    assert len(commands) > 20
    # A registry imports them by name.
    rows = [name for name in MODULES if name.endswith('.family')]
    assert len(rows) == 4
    ways = [way_to(HEAVY, name) for name in [*commands, *rows, *USED_BY_COMMANDS]]
    assert [' -> '.join(way) for way in ways if way] == []


def test_commands_load_no_package_of_an_extra_before_they_check_for_it():
    ways = [way_to(OPTIONAL, name) for name in MODULES if name.startswith('object_detection.cli')]
    assert [' -> '.join(way) for way in ways if way] == []


def test_models_load_tensorflow():
    way = way_to(HEAVY, 'object_detection.meta_architectures.detection_model')
    assert way[0] == 'object_detection.meta_architectures.detection_model'
    assert way[-1] in HEAVY
