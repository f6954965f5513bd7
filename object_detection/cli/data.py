"""`tfod data`: downloads and converts a public data set, splits or draws a data set."""

import os

import click

from object_detection.cli import downloading, option_flags

_DATA_SETS = ['coco2017']
_SPLITS = ['train2017', 'val2017', 'test2017', 'unlabeled2017']
# Split -> name of its records and number of files.
_RECORDS = {'train2017': ('coco_train', 100), 'val2017': ('coco_val', 50)}


@click.group(name='data')
def command() -> None:
    """Download a public data set and convert it to TFRecords, or split a data set of yours."""


@command.command(context_settings={'show_default': True})
@click.argument('name', type=click.Choice(_DATA_SETS))
@click.option('--output', required=True, metavar='FOLDER', help='Folder to put it in.')
@click.option(
    '--split',
    'splits',
    type=click.Choice(_SPLITS),
    multiple=True,
    default=('train2017', 'val2017'),
    help='What to download, with its annotations; repeatable.',
)
@click.option('--keep_archives', is_flag=True, help='Leave the archives after unpacking.')
@downloading.base_url_option('http://images.cocodataset.org, e.g. a mirror of yours')
def download(
    name: str,
    output: str,
    splits: tuple[str, ...],
    keep_archives: bool,
    base_urls: tuple[str, ...],
) -> None:
    """Downloads and unpacks a data set: OUTPUT/train2017, OUTPUT/annotations and so on.

    A download that was stopped or cut off goes on where it was. Sizes and checksums are verified,
    wherever the files come from; what is complete is not downloaded again. COCO 2017 needs about
    40 GB while it is unpacked, and 21 GB afterwards.
    """
    # Imported here, since the imports are slow and `--help` does not need them.
    from object_detection.dataset_tools.downloads import coco_download, known_files

    with downloading.resumable():
        coco_download.download(
            output,
            splits,
            base_urls=base_urls or known_files.COCO_BASE_URLS,
            keep_archives=keep_archives,
            show=downloading.show,
            print_line=downloading.print_line,
        )
    click.echo(f'{output}: {", ".join(splits)} with annotations')
    if set(_RECORDS) <= set(splits):
        click.echo(f'Next: tfod data convert {name} --data {output} --output {output}/records')


@command.command(context_settings={'show_default': True})
@option_flags.config_option()
@click.option('--output', required=True, metavar='FOLDER', help='Folder for the pictures.')
@click.option('--count', default=8, type=click.IntRange(min=1), help='How many pictures.')
@click.option('--seed', default=0, help='Of the order and the augmentations.')
@click.option('--eval', 'of_eval', is_flag=True, help='Draw the first eval_input_reader instead.')
@click.option('--set', 'settings', multiple=True, help='FIELD.PATH=VALUE in the config.')
def show(
    config: str, output: str, count: int, seed: int, of_eval: bool, settings: tuple[str, ...]
) -> None:
    """Draws what a model is trained on: augmented images with boxes, masks and class names.

    Writes OUTPUT/NUMBER_SOURCEID.png; a look at a few of them finds swapped classes, shifted boxes
    and augmentations that go too far before a training does.
    """
    from object_detection.config.reader import read_pipeline
    from object_detection.system import tensorflow_setup
    from object_detection.validation.validate import validate

    pipeline = read_pipeline(config, settings=settings)
    validate(pipeline, for_what='eval' if of_eval else 'train')
    tensorflow_setup.import_tensorflow()
    from object_detection.cli import progress
    from object_detection.system import disk
    from object_detection.training.monitoring import input_pictures

    with progress.show('drawing') as report, disk.full_disk_named(output):
        written = input_pictures.write(
            pipeline,
            output,
            count=count,
            seed=seed,
            eval_reader=0 if of_eval else None,
            progress=report,
        )
    click.echo(f'{len(written)} pictures in {output}')


@command.command(context_settings={'show_default': True})
@click.argument('name', type=click.Choice(_DATA_SETS))
@click.option('--data', required=True, metavar='FOLDER', help='Folder that it was downloaded to.')
@click.option(
    '--output',
    required=True,
    metavar='FOLDER',
    help='Folder of the TFRecords (`tfod convert coco` takes a PREFIX of files instead).',
)
@click.option(
    '--masks/--no_masks',
    default=True,
    help='Write instance masks; on here, as COCO has them, and off in `tfod convert coco`.',
)
@click.option(
    '--workers',
    '--num_workers',
    'workers',
    default=1,
    help='Local processes; each writes whole files.',
)
def convert(name: str, data: str, output: str, masks: bool, workers: int) -> None:
    """Converts the training and validation images of a downloaded data set to TFRecords.

    Writes OUTPUT/coco_train-?????-of-00100 and OUTPUT/coco_val-?????-of-00050, with label maps and
    reports, as two calls of `tfod convert coco` would.
    """
    from object_detection.cli import convert as convert_command

    for split, (prefix, shards) in _RECORDS.items():
        click.echo(f'{split}:')
        click.get_current_context().invoke(
            convert_command.coco,
            images=os.path.join(data, split),
            annotations=os.path.join(data, 'annotations', f'instances_{split}.json'),
            output=os.path.join(output, prefix),
            shards=shards,
            masks=masks,
            workers=workers,
        )


@command.command(context_settings={'show_default': True})
@click.option('--annotations', required=True, help='COCO JSON file of all images.')
@click.option(
    '--output', required=True, metavar='FOLDER', help='Folder of train.json and val.json.'
)
@click.option(
    '--val_share',
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2,
    help='Share of the images to hold out for validation.',
)
@click.option('--seed', default=0, help='The same seed draws the same images.')
def split(annotations: str, output: str, val_share: float, seed: int) -> None:
    """Hold out images for validation: write train.json and val.json from one COCO JSON file.

    Images of one scene or one video belong into the same part; this command draws them at random
    and cannot know.
    """
    from object_detection.dataset_tools import coco_split

    parts = coco_split.split(annotations, output, val_share=val_share, seed=seed)
    for name, part in parts.items():
        objects = ', '.join(f'{category} {count}' for category, count in part.objects.most_common())
        click.echo(f'{output}/{name}.json: {part.num_images} images; objects: {objects or "none"}')
    missing = parts['train'].objects.keys() - parts['val'].objects.keys()
    if missing:
        click.echo(f'No object in val.json of: {", ".join(sorted(missing))}. Another --seed?')
