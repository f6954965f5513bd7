"""Trains a detector on real data from nothing: blood cells, of which 205 photos have boxes.

    python benchmarks/bccd.py --model detr --data DIR --output DIR

The data are the set BCCD of white and red blood cells and platelets, in the format PASCAL VOC with
lists of training and validation images. Converts them to records, trains the sample config and
evaluates it on the validation list, by the commands that a user would type; with `--reader voc`,
training and evaluation read the folder of the data set itself. Exits with 1 if the average
precision to reach is not reached in time.
"""

import pathlib
import re

import click
import learned

_SAMPLES = {
    'ssd': 'ssd_resnet18_fpn_bccd',
    'faster_rcnn': 'faster_rcnn_resnet18_fpn_bccd',
    'detr': 'rt_detr_resnet18_bccd',
}
_RECORDS = re.compile(r'tf_record_input_reader \{ input_path: "[^"]+/(train|val)-[^"]+" \}')


@click.command(help=__doc__)
@click.option('--model', required=True, type=click.Choice(list(_SAMPLES)))
@click.option('--data', required=True, type=click.Path(exists=True, file_okay=False))
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option(
    '--reader', default='records', show_default=True, type=click.Choice(['records', 'voc'])
)
@click.option('--num_steps', default=0, help='Training steps; 0 = as in the sample config.')
@click.option('--max_minutes', default=30.0, show_default=True, help='For the training.')
@click.option('--seed', default=0, show_default=True)
@click.option('--box_ap', default=0.8, show_default=True, help='AP@.50 to reach.')
def main(
    model: str,
    data: str,
    output: str,
    reader: str,
    num_steps: int,
    max_minutes: float,
    seed: int,
    box_ap: float,
) -> None:
    folder = pathlib.Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for part in ('train', 'val'):
        learned.tfod(
            *('convert', 'voc', '--data_dir', data, '--set', part, '--shards', 2),
            *('--output', folder / part),
        )
    voc = f'voc_input_reader {{ data_dir: "{pathlib.Path(data).as_posix()}" set: "%s" }}'
    trained = learned.train(
        _SAMPLES[model],
        folder,
        seed=seed,
        num_steps=num_steps,
        max_minutes=max_minutes,
        change=(lambda text: _RECORDS.sub(lambda found: voc % found[1], text))
        if reader == 'voc'
        else None,
    )
    learned.finish(trained, box_ap)


if __name__ == '__main__':
    main()
