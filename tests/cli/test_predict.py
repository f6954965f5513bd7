import pytest
from click.testing import CliRunner

from object_detection.cli.predict import command, find_images
from object_detection.export import predict


def test_files_and_folders_become_a_list_of_images(tmp_path):
    folder = tmp_path / 'photos'
    folder.mkdir()
    for name in ('b.JPG', 'a.png', 'notes.txt'):
        (folder / name).write_bytes(b'')
    single = tmp_path / 'c.jpeg'
    single.write_bytes(b'')
    found = find_images((str(single), str(folder)))
    assert [path.name for path in found] == ['c.jpeg', 'a.png', 'b.JPG']


def test_missing_input_and_empty_folder_are_named(tmp_path):
    with pytest.raises(ValueError, match=r'--input .*nowhere: no such file or folder'):
        find_images((str(tmp_path / 'nowhere'),))
    with pytest.raises(ValueError, match='holds no image'):
        find_images((str(tmp_path),))


@pytest.mark.parametrize(
    ('precision', 'told'), [('tf32', 'in out, computed in tf32'), (None, 'in out')]
)
def test_the_precision_of_the_model_is_told(precision, told, tmp_path, monkeypatch):
    image = tmp_path / 'a.png'
    image.write_bytes(b'')
    summary = predict.PredictionSummary(1, 2, 0, [], precision)
    monkeypatch.setattr(predict, 'predict_files', lambda *_, **options: summary)
    arguments = ['--model', 'm', '--input', str(image), '--output', 'out']
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert result.output.endswith(f'1 images, 2 detections (0 drawn, score >= 0.5) {told}\n')
