"""The functions of the package that do the work of commands: their options, and the notebook."""

import ast
import dataclasses
import inspect
import io
import json
import pathlib
import shutil
import subprocess
import sys
import typing

import pytest
from PIL import Image

import object_detection as od
from object_detection.config.job_options import EvalOptions, TrainOptions
from object_detection.errors import OptionsError, UserError
from object_detection.training.evaluation.results import EvaluationResult
from tests import rows

NOTEBOOK = pathlib.Path(__file__).parents[1] / 'docs/notebooks/photos_to_picture.ipynb'


@rows.parametrize(('function', 'options'), [('train', TrainOptions), ('evaluate', EvalOptions)])
def test_completion_and_help_have_every_option(function, options):
    called = getattr(od, function)
    names = {field.name for field in dataclasses.fields(options)}
    assert names < set(inspect.signature(called).parameters)
    for field in dataclasses.fields(options):
        assert f'  {field.name}: ' in called.__doc__
    hints = typing.get_type_hints(called)
    assert names < set(hints)
    assert hints['return'] is {'train': od.Run, 'evaluate': EvaluationResult}[function]


@rows.parametrize(
    ('options', 'error', 'message'),
    [
        ({'num_train_step': 3}, TypeError, r"'num_train_step' \(did you mean 'num_train_steps'"),
        ({'num_train_steps': '3'}, UserError, 'num_train_steps: expected a value of type int or'),
        ({'num_train_steps': 0}, UserError, '--num_train_steps: expected 1 to'),
        ({'use_tpu': 1}, UserError, 'use_tpu: expected a value of type bool'),
        ({'precision': 'bf16'}, UserError, "one of .* Received: 'bf16' .*'bfloat16'"),
        ({'set': ('train_config.batch_sise=1',)}, UserError, 'no.config'),
    ],
)
def test_wrong_options_of_a_training_are_named(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        od.train('no.config', tmp_path, **options)


@rows.parametrize(
    ('options', 'message'),
    [
        ({'format': 'coc'}, "one of auto, coco, .*'coc' .*'coco'"),
        ({'format': 'coco', 'image': 'a'}, "convert of coco: .*'image' .*'images'"),
        (
            {'format': 'coco', 'images': 'a'},
            r'annotations \(all: images, .*\)\. Received: images',
        ),
        ({'format': 'coco', 'images': 3, 'annotations': 'a'}, 'images: expected a value of type'),
        ({'format': 'auto'}, 'the option folder'),
        ({'format': 'auto', 'folder': 'empty'}, 'no format that is known here'),
        ({'format': 'auto', 'folder': 'absent'}, 'absent: there is no such folder'),
    ],
)
def test_wrong_options_of_a_conversion_are_named(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path('empty').mkdir()
    with pytest.raises(UserError, match=message):
        od.convert(output='out', **options)


def test_other_options_that_cannot_be_used_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionsError, match='--batch_size: expected with --format stablehlo'):
        od.export('a.config', 'model', 'out', batch_size=2)
    with pytest.raises(UserError, match='--precision: expected one of'):
        od.export('a.config', 'model', 'out', precision='int4')
    with pytest.raises(UserError, match='--checkpoint_dir model: expected'):
        od.export('a.config', 'model', 'out')
    with pytest.raises(UserError, match='--for: expected one of cpu, gpu, mobile'):
        od.new_config('data/train', device='tpu')
    with pytest.raises(OptionsError, match='--epochs: not with'):
        od.new_config('data/train', epochs=2, num_train_steps=3)
    with pytest.raises(UserError, match=r'the model_dir of a training\. Received: model'):
        od.Run('model')
    pathlib.Path('pipeline.config').touch()
    with pytest.raises(UserError, match=r'pipeline\.config exists'):
        od.new_config('data/train')


def test_export_is_a_function_in_either_order_of_imports():
    program = (
        'import sys\nimport object_detection as od\nfirst = od.export\n'
        'import object_detection.export.formats.formats as formats\n'
        'assert first is od.export and callable(od.export) and formats.EXPORT_FORMATS\n'
        'try: od.export("a", "b", "c", batch_size=2)\n'
        'except ValueError as error: print(error)\n'
        'print("tensorflow" in sys.modules)'
    )
    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0].startswith('--batch_size: expected')
    assert done.stdout.splitlines()[1] == 'False'


def cells() -> list[str]:
    document = json.loads(NOTEBOOK.read_text())
    return [''.join(cell['source']) for cell in document['cells'] if cell['cell_type'] == 'code']


def run_cell(source: str, names: dict[str, object]) -> object:
    """Executes a cell; returns the value of its last line, which a notebook shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, 'exec'), names)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, 'eval'), names) if last else None


@pytest.mark.slow
def test_the_notebook_leads_from_photos_to_a_picture(shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = shared / 'data' / 'geti_blocks'
    (tmp_path / 'photos').symlink_to(source / 'images' / 'NONE')
    shutil.copy(next(source.glob('annotations/*.json')), tmp_path / 'instances.json')
    names: dict[str, object] = {}
    shown = []
    for text in cells():
        # Two steps find nothing sure.
        fewer = text.replace('num_train_steps=500', 'num_train_steps=2')
        shown.append(run_cell(fewer.replace('score_threshold=0.3', 'score_threshold=0'), names))
    assert 'finished at step 2 of 2' in repr(shown[1])
    found = shown[2]
    assert len(found) > 0
    picture = Image.open(io.BytesIO(found._repr_png_()))
    assert max(picture.size) <= 1280
    assert shown[3] == [] or set(dict(shown[3])) <= {'cube', 'cylinder'}


def test_the_notebook_is_short_and_without_outputs():
    assert sum(len(text.splitlines()) for text in cells()) <= 12
    document = json.loads(NOTEBOOK.read_text())
    assert not any(cell.get('outputs') for cell in document['cells'])
