"""`tfod predict`: annotated pictures and a COCO results file from an exported model."""

import pathlib

import click

from object_detection.cli import progress
from object_detection.config import freed_memory, quiet_import

_IMAGE_SUFFIXES = {'.jpg', '.jpeg', '.png', '.bmp', '.gif'}


@click.command(name='predict')
@click.option('--model', required=True, help='Output directory of `tfod export`, or a SavedModel.')
@click.option(
    '--input', 'inputs', required=True, multiple=True, help='Image or folder; repeatable.'
)
@click.option(
    '--output',
    required=True,
    metavar='FOLDER',
    help='Folder for pictures and JSON files; not that of the images.',
)
@click.option('--label_map', default='', help='Label map; names the classes in the pictures.')
@click.option('--min_score', default=0.5, show_default=True, help='Lowest score that is drawn.')
@click.option(
    '--max_boxes', default=100, show_default=True, help='Most objects drawn in a picture.'
)
@click.option('--limit', default=0, help='Stop after so many images; 0 = all.')
def command(
    model: str,
    inputs: tuple[str, ...],
    output: str,
    label_map: str,
    min_score: float,
    max_boxes: int,
    limit: int,
) -> None:
    """Detects objects in images.

    Writes one annotated picture an image and detections.json, a COCO results file with every
    detection of any score (boxes in pixels of the image as [x, y, width, height], masks as RLE).
    A file's image id is its name if that is a number, else the lowest number that no file has;
    images.json tells for each image its id, file and picture. Pictures are called NAME.png, and
    NAME_2.png and so on where several images have that name.
    """
    paths = find_images(inputs)
    if limit:
        paths = paths[:limit]
    # Imported here: TensorFlow takes seconds, and wrong paths are told at once.
    freed_memory.keep()
    quiet_import.import_tensorflow()
    from object_detection.export.predict import predict_files

    with progress.show('predicting') as report:
        summary = predict_files(
            model,
            paths,
            output,
            label_map_path=label_map or None,
            min_score=min_score,
            max_boxes=max_boxes,
            progress=report,
        )
    computed = f', computed in {summary.precision}' if summary.precision else ''
    click.echo(
        f'{summary.images} images, {summary.detections} detections '
        f'({summary.drawn} drawn, score >= {min_score:g}) in {output}{computed}'
    )
    for problem in summary.problems:
        click.echo(f'left out: {problem}', err=True)


def find_images(inputs: tuple[str, ...]) -> list[pathlib.Path]:
    """Lists the images named by files and folders, sorted; the order of the inputs is kept.

    Raises:
      ValueError: if an input does not exist or a folder holds no image.
    """
    paths: list[pathlib.Path] = []
    for text in inputs:
        path = pathlib.Path(text)
        if path.is_dir():
            found = sorted(p for p in path.iterdir() if p.suffix.lower() in _IMAGE_SUFFIXES)
            if not found:
                raise ValueError(
                    f'--input {text}: the folder holds no image '
                    f'({", ".join(sorted(_IMAGE_SUFFIXES))}).'
                )
            paths += found
        elif path.is_file():
            paths.append(path)
        else:
            raise ValueError(f'--input {text}: no such file or folder.')
    return paths
