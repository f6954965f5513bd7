import pathlib
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_slow_tests_are_deselected_by_default():
    done = subprocess.run(
        [
            sys.executable,
            '-m',
            'pytest',
            '-q',
            '--collect-only',
            'tests/benchmarks/test_scaling.py',
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert 'batch_training' not in done.stdout
    assert 'deselected' in done.stdout


def test_the_source_distribution_holds_what_the_tests_need(tmp_path):
    copy = tmp_path / 'copy'
    ignored = shutil.ignore_patterns('.git', '.venv', '*.egg-info', '__pycache__', 'demo_out')
    shutil.copytree(ROOT, copy, ignore=ignored)
    subprocess.run(
        [sys.executable, 'setup.py', '-q', 'sdist', '--dist-dir', tmp_path],
        cwd=copy,
        check=True,
        capture_output=True,
    )
    (path,) = tmp_path.glob('*.tar.gz')
    with tarfile.open(path) as archive:
        names = {name.partition('/')[2] for name in archive.getnames()}
    assert {
        'tests/__init__.py',
        'tests/conftest.py',
        'tests/tiny_models.py',
        'tests/training/fakes.py',
        'tests/cli/test_main.py',
        'docs/config.md',
        'benchmarks/overfit.py',
        'Makefile',
        'Containerfile',
        '.dockerignore',
        '.ci/run',
        'setup.py',
        'object_detection/protos/pipeline.proto',
        'object_detection/data/mscoco_label_map.pbtxt',
        'object_detection/samples/configs/mask_rcnn_resnet18_fpn_shapes.config',
    } <= names
    assert not [name for name in names if '__pycache__' in name]
