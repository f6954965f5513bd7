"""`tfod weights`: ImageNet weights of backbones, as Keras applications publish them."""

import click

from object_detection.cli import downloading


@click.group(name='weights')
def command() -> None:
    """Downloads ImageNet weights of backbones, as Keras applications publish them."""


@command.command(name='list')
def list_all() -> None:
    """Lists the backbones, and the feature extractors of this toolkit that have them."""
    from object_detection.dataset_tools.downloads.known_files import WEIGHTS

    width = max(map(len, WEIGHTS))
    for name, weights in WEIGHTS.items():
        use = ', '.join(weights.extractors) or 'no feature extractor has it yet'
        checksum = f'MD5 {weights.file.checksum}' if weights.file.checksum else 'no checksum'
        click.echo(f'{name:{width}}  {use}\n{"":{width}}  {weights.file.name}, {checksum}')


@command.command()
@click.argument('names', nargs=-1, required=True, metavar='NAME...')
@click.option('--output', required=True, metavar='FOLDER', help='Folder to put the files in.')
@downloading.base_url_option('https://storage.googleapis.com, e.g. a mirror of yours')
def download(names: tuple[str, ...], output: str, base_urls: tuple[str, ...]) -> None:
    """Downloads the weights of backbones, such as resnet50; `tfod weights list` names all.

    A download that was stopped or cut off goes on where it was. A file that is there is verified
    and not downloaded again.
    """
    from object_detection.dataset_tools.downloads import known_files
    from object_detection.dataset_tools.downloads.download import Downloader

    for name in names:
        if name not in known_files.WEIGHTS:
            known = ', '.join(known_files.WEIGHTS)
            raise click.UsageError(f'Expected some of: {known}. Received: {name}.')
    for name in names:
        weights = known_files.WEIGHTS[name]
        with downloading.resumable(), downloading.show(f'downloading {name}') as report:
            path = Downloader(report=report, print_line=downloading.print_line).fetch(
                weights.file, output, base_urls or known_files.WEIGHTS_BASE_URLS
            )
        click.echo(path)
        click.echo(_how_to_use(path, weights.extractors))


def _how_to_use(path: str, extractors: tuple[str, ...]) -> str:
    if not extractors:
        return '  No feature extractor of this toolkit has this backbone yet.'
    return (
        f'  for {" or ".join(extractors)}:\n'
        f'  train_config {{ fine_tune_checkpoint: "{path}" '
        'fine_tune_checkpoint_type: "classification" }'
    )
