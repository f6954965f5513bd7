"""COCO 2017 in miniature: the published archives and their layout, with a few generated images."""

import dataclasses
import hashlib
import io
import json
import pathlib
import zipfile

import pytest

from object_detection.dataset_tools import shapes
from object_detection.dataset_tools.downloads import known_files
from object_detection.dataset_tools.downloads.download import RemoteFile
from tests.dataset_tools.downloads.file_server import FileServer

_SPLITS = ('train', 'val')


def put(server: FileServer, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `server` have the archives, and the tables of files name their sizes and checksums."""
    shapes.write_shapes(folder, num_train=3, num_val=2, image_size=48)
    annotations = {}
    for split in _SPLITS:
        content = (folder / f'instances_{split}.json').read_bytes()
        assert json.loads(content)['images']
        annotations[f'annotations/instances_{split}2017.json'] = content
        images = {
            f'{split}2017/{path.name}': path.read_bytes() for path in (folder / split).iterdir()
        }
        server.files[f'/zips/{split}2017.zip'] = _zip(images)
    server.files['/annotations/annotations_trainval2017.zip'] = _zip(annotations)
    monkeypatch.setattr(known_files, 'COCO2017', _table(server))


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w') as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _table(server: FileServer) -> dict[str, tuple[RemoteFile, ...]]:
    """Returns the real table with the sizes and checksums of what is served."""

    def served(file: RemoteFile) -> RemoteFile:
        content = server.files.get(f'/{file.path}', b'')
        digest = hashlib.sha256(content).hexdigest()
        return dataclasses.replace(file, size=len(content), checksum=digest)

    return {split: tuple(map(served, files)) for split, files in known_files.COCO2017.items()}
