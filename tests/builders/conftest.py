import numpy as np
import pytest

from tests.data import examples


@pytest.fixture(scope='session')
def records(tmp_path_factory):
    """Ten images in three files: images 0-9 of different sizes, image i with i % 3 objects."""
    folder, serialized = tmp_path_factory.mktemp('records'), []
    for i in range(10):
        size = (20 + i, 30 + 2 * i)
        serialized.append(
            examples.example(
                [[0.1, 0.1, 0.5, 0.2 + j / 10] for j in range(i % 3)],
                [1 + j % 2 for j in range(i % 3)],
                source_id=str(i),
                image=examples.png(examples.noise(*size, seed=i)),
                masks=[np.ones(size)] * (i % 3),
            )
        )
    for shard in range(3):
        path = folder / f'train.record-{shard:05d}-of-00003'
        examples.write_records(path, serialized[shard::3])
    return str(folder / 'train.record-?????-of-00003')
