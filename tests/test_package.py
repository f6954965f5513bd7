import importlib
import os
import subprocess
import sys

import pytest
from PIL import Image

import object_detection
from object_detection import absent_modules
from object_detection.errors import UserError
from object_detection.utils import colab_utils


def test_modules_of_the_reference_name_their_replacement():
    with pytest.raises(ImportError, match=r'model_lib_v2 of the .* `tfod train`'):
        from object_detection import model_lib_v2  # noqa: F401
    with pytest.raises(
        ImportError, match=r'core\.box_list of the .* object_detection\.core\.boxes'
    ):
        from object_detection.core import box_list  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r'tfod eval'):
        importlib.import_module('object_detection.metrics.coco_evaluation')


def test_other_modules_that_do_not_exist_have_the_usual_error():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'object_detection\.no_such'"):
        importlib.import_module('object_detection.no_such')
    assert not hasattr(object_detection, 'no_such')


def test_no_replaced_module_exists():
    for name in absent_modules._REPLACEMENTS:
        with pytest.raises(ModuleNotFoundError, match='does not exist here'):
            importlib.import_module(f'object_detection.{name}')


def test_the_annotation_tool_of_notebooks_is_imported_and_says_what_to_use():
    with pytest.raises(UserError, match='tfod convert'):
        colab_utils.annotate([], box_storage_pointer=[])


def test_the_package_lists_its_names_and_its_version():
    assert {'Predictor', 'load', 'read_image', '__version__'} <= set(dir(object_detection))
    assert 'os' not in dir(object_detection)
    assert object_detection.__version__.split('.')[0].isdigit()


def test_the_first_call_shows_nothing_of_tensorflow(tmp_path):
    Image.new('RGB', (3, 2)).save(tmp_path / 'a.png')
    program = "import object_detection as od; print(od.read_image('a.png').shape)"
    environment = {k: v for k, v in os.environ.items() if not k.startswith('TF_')}
    environment['PYTHONPATH'] = os.path.dirname(os.path.dirname(object_detection.__file__))
    done = subprocess.run(
        [sys.executable, '-c', program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ('(2, 3, 3)\n', '')
