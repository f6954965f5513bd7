"""The order in which packages may import each other, and who may see protos."""

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / 'object_detection'

# A package may import those of its own row and of the rows above.
LAYERS = [
    {'absent_modules', 'errors'},
    {'protos', 'registry'},
    {'system'},
    {'core'},
    {'config'},
    {'optimizers', 'resizers', 'targets'},
    {'data', 'losses', 'models'},
    {'metrics', 'weights'},
    {'builders', 'visualization'},
    {'meta_architectures', 'utils'},
    {'runtime', 'validation'},
    {'dataset_tools', 'training'},
    {'export', 'reporting', 'scoring'},
    {'prediction'},
    {'benchmarking', 'register', 'serving', 'tasks'},
    {'cli'},
    {'__main__', 'export_tflite_graph_tf2', 'exporter_main_v2', 'model_main_tf2'},
]
SEE_PROTOS = {'builders', 'cli', 'config', 'dataset_tools', 'export', 'training', 'validation'}
SEE_PROTOS |= {'scoring'}
SEE_PROTOS |= {'utils', 'export_tflite_graph_tf2', 'exporter_main_v2', 'model_main_tf2'}
FILES_THAT_SEE_PROTOS = {
    'data/label_map.py',
    'data/record_checks.py',
    'meta_architectures/center_net/build.py',
    'meta_architectures/center_net/deepmac/build.py',
    'meta_architectures/center_net/deepmac/rules.py',
    'meta_architectures/center_net/family.py',
    'meta_architectures/center_net/rules.py',
    'meta_architectures/center_net/warnings.py',
    'meta_architectures/detr/build.py',
    'meta_architectures/detr/family.py',
    'meta_architectures/detr/loss_names.py',
    'meta_architectures/detr/rules.py',
    'meta_architectures/detector.py',
    'meta_architectures/detr/transformers_config.py',
    'meta_architectures/detr/transformers_networks.py',
    'meta_architectures/detr/transformers_pipeline.py',
    'meta_architectures/faster_rcnn/build.py',
    'meta_architectures/faster_rcnn/build_second_stage.py',
    'meta_architectures/faster_rcnn/family.py',
    'meta_architectures/faster_rcnn/rules.py',
    'meta_architectures/faster_rcnn/warnings.py',
    'meta_architectures/ssd/build.py',
    'meta_architectures/ssd/family.py',
    'meta_architectures/ssd/rules.py',
    'meta_architectures/ssd/warnings.py',
    'meta_architectures/trainable_variables.py',
    'models/precision.py',
    'prediction/predict_records.py',
    'runtime/class_names.py',
    'runtime/file_detector.py',
    'tasks/data.py',
}
CORE_MAY_IMPORT = {'collections', 'dataclasses', 'math', 'numpy', 'tensorflow', 'typing', 'enum'}
CORE_MAY_IMPORT |= {'contextlib', 'contextvars', 'functools', 're', 'time'}


@functools.cache
def modules() -> list[pathlib.Path]:
    files = (path for path in PACKAGE.rglob('*.py') if not path.name.endswith('_pb2.py'))
    return sorted(path for path in files if path.relative_to(PACKAGE).as_posix() != '__init__.py')


def part_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix('.py')


@functools.cache
def nodes(path: pathlib.Path) -> list[ast.AST]:
    """The nodes of a file of the kinds that tests look at."""
    kinds = (ast.Import, ast.ImportFrom, ast.Call, ast.Name, ast.Attribute)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


@functools.cache
def imported(path: pathlib.Path) -> set[str]:
    """Full names of all modules that a file imports, anywhere in it."""
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f'{node.module}.{alias.name}' for alias in node.names}
    return names


@functools.cache
def layer_of(part: str) -> int:
    (index,) = [i for i, layer in enumerate(LAYERS) if part in layer]
    return index


def test_imports_go_one_way():
    wrong = []
    for path in modules():
        part, file = part_of(path), path.relative_to(PACKAGE).as_posix()
        own = layer_of(part)
        for name in imported(path):
            if not name.startswith('object_detection.'):
                continue
            other = name.split('.')[1]
            if other == 'protos':
                allowed = part in SEE_PROTOS or file in FILES_THAT_SEE_PROTOS or part == 'protos'
            else:
                allowed = layer_of(other) <= own
            if not allowed:
                wrong.append(f'{file} imports {name}')
    assert not wrong


def test_errors_with_a_message_are_those_of_users():
    # The command line shows the message of a UserError, and a traceback of any other ValueError.
    bare = [
        f'{path.relative_to(PACKAGE)}:{node.lineno}'
        for path in modules()
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == 'ValueError'
    ]
    assert not bare, f'{bare}: raise a UserError, or one of its kinds'


def test_private_names_of_tensorflow_and_keras_are_in_one_file():
    private = ('tensorflow.python', 'tensorflow.compiler', 'tensorflow.core', 'keras.src')
    files = {path for path in modules() if any(n.startswith(private) for n in imported(path))}
    assert files == {PACKAGE / 'system/private_names.py'}


def test_core_imports_only_tensorflow_and_numpy():
    for path in modules():
        if part_of(path) == 'core':
            others = {name.split('.')[0] for name in imported(path)} - {'object_detection'}
            assert others <= CORE_MAY_IMPORT, f'{path.name}: {sorted(others - CORE_MAY_IMPORT)}'


def test_no_module_is_imported_by_a_name_made_up_at_run_time():
    """Only the table of commands and the tables of parts load what they name."""
    found = set()
    for path in modules():
        for node in nodes(path):
            name = getattr(node, 'attr', getattr(node, 'id', ''))
            if name in ('import_module', '__import__'):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {'cli/main.py', 'registry.py'}


def test_no_folder_has_many_modules():
    folders = {path.parent for path in PACKAGE.rglob('*.py')}
    counts = {
        str(folder): sum(
            path.name != '__init__.py' and not path.name.endswith('_pb2.py')
            for path in folder.glob('*.py')
        )
        for folder in folders
    }
    assert {name: count for name, count in counts.items() if count > 20} == {}
