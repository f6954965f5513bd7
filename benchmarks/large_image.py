"""Time and peak memory of `tfod predict --tile` on one large TIFF file.

    python benchmarks/large_image.py
    python benchmarks/large_image.py --size 4000 --layout strips --dtype uint16

generates a file of --size x --size pixels in three channels with bright rectangles, block by block,
and weights of a sample config with spread scores, and runs the command on it, and on a file of one
tile, whose memory is that of the program and the model. The extra `tiff` writes and reads the file.
"""

import pathlib
import sys
import tempfile

import click
import numpy as np
import own_process

from object_detection.benchmarking import work
from object_detection.config.reader import read_pipeline
from object_detection.config.show import write_pipeline

_SAMPLE = 'ssd_mobilenet_v2_fpnlite_shapes'
_ROOT = pathlib.Path(__file__).resolve().parents[1]
_BLOCK = 512
_COLUMNS = (
    ('size', 'side px', '{}'),
    ('file_mb', 'file MB', '{:.0f}'),
    ('pixels_mb', 'pixels MB', '{:.0f}'),
    ('seconds', 'time s', '{:.1f}'),
    ('peak_memory', 'peak MB', '{:.0f}'),
)


@click.command(help=__doc__)
@click.option('--size', default=20_000, show_default=True, help='Side of the image.')
@click.option('--tile', default=1024, show_default=True, help='Side of a tile.')
@click.option('--batch_size', default=4, show_default=True, help='Tiles at a time.')
@click.option('--dtype', default='uint8', show_default=True, help='uint8 or uint16.')
@click.option(
    '--layout', type=click.Choice(['tiled', 'strips']), default='tiled', show_default=True
)
@click.option('--output_format', default='pictures,csv', show_default=True, help='As of predict.')
def main(
    size: int, tile: int, batch_size: int, dtype: str, layout: str, output_format: str
) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        _write_model(folder)
        for side in (tile, size):
            source = folder / f'{side}' / 'image.tif'
            source.parent.mkdir()
            write_image(source, side, dtype, layout)
            words = ['predict', '--config', 'model.config', '--checkpoint_dir', 'model']
            words += ['--input', source, '--output', folder / f'found_{side}']
            words += ['--tile', tile, '--batch_size', batch_size, '--output_format', output_format]
            command = [sys.executable, '-m', 'object_detection.cli.main', *map(str, words)]
            found = own_process.watch(command, scratch)
            file_mb = source.stat().st_size / 1e6
            pixels_mb = side * side * 3 * np.dtype(dtype).itemsize / 1e6
            rows.append({'size': side, 'file_mb': file_mb, 'pixels_mb': pixels_mb, **found})
    print(f'{dtype}, {layout}, tiles of {tile}, {batch_size} at a time')
    print('\n'.join(own_process.table(_COLUMNS, rows)))


def write_image(path: pathlib.Path, side: int, dtype: str, layout: str) -> None:
    """Writes dark noise with a bright rectangle in every second block, which holds no more."""
    import rasterio
    from rasterio.windows import Window

    profile = {'height': side, 'width': side, 'count': 3, 'dtype': dtype, 'compress': 'deflate'}
    profile |= {'BIGTIFF': 'IF_SAFER', 'interleave': 'pixel'}
    if layout == 'tiled':
        profile |= {'tiled': True, 'blockxsize': _BLOCK, 'blockysize': _BLOCK}
    generator, scale = np.random.default_rng(0), np.iinfo(dtype).max // 255
    with (
        rasterio.Env(GDAL_CACHEMAX=2**28),
        rasterio.open(path, 'w', driver='GTiff', **profile) as file,
    ):
        for top in range(0, side, _BLOCK):
            height = min(_BLOCK, side - top)
            rows = generator.integers(0, 40, (3, height, side), dtype) * scale
            for left in range(_BLOCK // 4, side - _BLOCK // 2, 2 * _BLOCK):
                rows[:, height // 4 : height // 2, left : left + _BLOCK // 2] = 230 * scale
            file.write(rows, window=Window(0, top, side, height))


def _write_model(folder: pathlib.Path) -> None:
    from object_detection.weights import checkpoints

    sample = _ROOT / 'object_detection' / 'samples' / 'configs' / f'{_SAMPLE}.config'
    pipeline = read_pipeline(str(sample))
    write_pipeline(pipeline, str(folder / 'model.config'))
    detector = work.build_with_spread_scores(pipeline, 'float32')
    checkpoints.save_model(str(folder / 'model'), detector.named_variables(), 1)


if __name__ == '__main__':
    main()
