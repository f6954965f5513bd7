import pytest

from object_detection.cli.predict import find_images


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
