import contextlib
import pathlib
import subprocess
import sys

from click.testing import CliRunner

from object_detection.cli.export import command
from object_detection.export import exporter, verification
from object_detection.system import console
from object_detection.weights import checkpoints
from tests import rows
from tests.validation import pipelines


def test_the_checkpoint_that_is_reported_is_the_one_that_is_exported(tmp_path, monkeypatch):
    used, newest = [], iter(range(1, 9))
    monkeypatch.setattr(checkpoints, 'find', lambda path: f'{path}/ckpt-{next(newest)}')
    monkeypatch.setattr(exporter, 'describe', lambda asked, found: f'{found} of {asked}')

    def export(
        pipeline, checkpoint, output, *, images, precision, label_map_path, constant_weights, **_
    ):
        assert label_map_path is None
        assert not constant_weights
        used.append((checkpoint, images, precision))
        return exporter.Exported('mixed_bfloat16', verification.Comparison(1, 0, 0.0))

    monkeypatch.setattr(exporter, 'export', export)
    image = tmp_path / 'a.png'
    image.write_bytes(b'')
    config = pipelines.write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    pathlib.Path('run').mkdir()
    arguments = ['--config', config, '--checkpoint_dir', 'run', '--output', tmp_path / 'out']
    arguments += ['--verify', image, '--precision', 'bfloat16']
    result = CliRunner().invoke(command, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith('exporting run/ckpt-1 of run\n')
    assert used == [('run/ckpt-1', [image], 'bfloat16')]
    assert '(image_tensor, computes in mixed_bfloat16)' in result.output
    assert '1 images: 1 detections in process, 0 without counterpart' in result.output


def test_each_file_is_reported_while_its_writing_is_shown(tmp_path, monkeypatch):
    running = []

    def export_files(pipeline, checkpoint, output, names, **_):
        for name in names:
            running.append(bool(phases))
            yield exporter.WrittenFile(name, tmp_path / name, 1.5, None)

    @contextlib.contextmanager
    def phase(what):
        phases.append(what)
        yield
        phases.pop()

    phases = []
    monkeypatch.setattr(console, 'phase', phase)
    monkeypatch.setattr(checkpoints, 'find', lambda path: f'{path}/ckpt-1')
    monkeypatch.setattr(exporter, 'describe', lambda asked, found: found)
    monkeypatch.setattr(exporter, 'export_files', export_files)
    config = pipelines.write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    pathlib.Path('run').mkdir()
    arguments = ['--config', config, '--checkpoint_dir', 'run', '--output', tmp_path / 'out']
    arguments += ['--format', 'onnx,tflite']
    result = CliRunner().invoke(command, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        'exporting run/ckpt-1',
        f'exported to {tmp_path}/onnx (onnx, 1.5 MB)',
        f'exported to {tmp_path}/tflite (tflite, 1.5 MB)',
    ]
    assert running == [True, True]


def test_the_command_is_known_without_loading_tensorflow():
    code = "import sys, object_detection.cli.export; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, '-c', code], check=False).returncode == 0


def test_boxes_cannot_be_verified():
    arguments = ['--config', 'c', '--checkpoint_dir', 'd', '--output', 'o', '--verify', 'a.png']
    result = CliRunner().invoke(command, [*arguments, '--input_type', 'image_and_boxes_tensor'])
    assert result.exit_code == 2
    assert 'which needs boxes' in result.output


@rows.parametrize(
    ('flags', 'message'),
    [
        (['--batch_size', '2'], '--batch_size: expected with --format stablehlo or triton alone'),
        (['--quantization', 'int8'], '--quantization: expected with --format tflite alone'),
        (['--calibration', 'a.png', '--format', 'onnx'], 'Received: --format onnx'),
        (['--calibration_limit', '0', '--format', 'tflite'], 'x>=1'),
    ],
)
def test_options_that_no_format_reads_are_refused(flags, message):
    arguments = ['--config', 'c', '--checkpoint_dir', 'd', '--output', 'o', *flags]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert message in result.output
