"""Trains a RetinaNet, ResNet-18 with a feature pyramid, on real data from nothing: blood cells.

    python benchmarks/ssd_bccd.py --data DIR --output DIR

The data are PASCAL VOC annotations with lists of training and validation images: the set BCCD of
white and red blood cells and platelets. Converts them to COCO JSON, that to records, trains the
sample config and evaluates it on the validation list, by the commands that a user would type.
Exits with 1 if the average precision to reach is not reached in time.
"""

import json
import pathlib
import xml.etree.ElementTree as ElementTree

import click
import learned
from PIL import Image

CLASSES = ('WBC', 'RBC', 'Platelets')
_SAMPLE = 'ssd_resnet18_fpn_bccd'
_CORNERS = ('xmin', 'ymin', 'xmax', 'ymax')


@click.command(help=__doc__)
@click.option('--data', required=True, type=click.Path(exists=True, file_okay=False))
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option('--num_steps', default=0, help='Training steps; 0 = as in the sample config.')
@click.option('--max_minutes', default=30.0, show_default=True, help='For the training.')
@click.option('--seed', default=0, show_default=True)
@click.option('--box_ap', default=0.8, show_default=True, help='AP@.50 to reach.')
def main(
    data: str, output: str, num_steps: int, max_minutes: float, seed: int, box_ap: float
) -> None:
    folder, source = pathlib.Path(output), pathlib.Path(data)
    folder.mkdir(parents=True, exist_ok=True)
    for part in ('train', 'val'):
        content = read_voc(source, part)
        (folder / f'{part}.json').write_text(json.dumps(content))
        print(f'{part}: {len(content["images"])} images, {len(content["annotations"])} objects')
        learned.tfod(
            *('convert', 'coco', '--images', source / 'JPEGImages', '--shards', 2),
            *('--annotations', folder / f'{part}.json', '--output', folder / part),
        )
    trained = learned.train(
        _SAMPLE, folder, seed=seed, num_steps=num_steps, max_minutes=max_minutes
    )
    learned.finish(trained, box_ap)


def read_voc(folder: pathlib.Path, part: str) -> dict:
    """Returns PASCAL VOC annotations as the content of a COCO JSON file.

    Coordinates of VOC count from 1. Objects of no width or height, of which the set has two, are
    left out.

    Args:
      folder: holds Annotations, ImageSets/Main and JPEGImages.
      part: name of a list of images.
    """
    names = (folder / 'ImageSets' / 'Main' / f'{part}.txt').read_text().split()
    images, annotations = [], []
    for image_id, name in enumerate(names, start=1):
        with Image.open(folder / 'JPEGImages' / f'{name}.jpg') as image:
            width, height = image.size
        images.append(
            {'id': image_id, 'file_name': f'{name}.jpg', 'width': width, 'height': height}
        )
        root = ElementTree.parse(folder / 'Annotations' / f'{name}.xml').getroot()
        for row in root.iter('object'):
            left, top, right, bottom = (float(row.findtext(f'bndbox/{key}')) for key in _CORNERS)
            if right <= left or bottom <= top:
                continue
            annotations.append(
                {
                    'id': len(annotations) + 1,
                    'image_id': image_id,
                    'category_id': CLASSES.index(row.findtext('name')) + 1,
                    'bbox': [left - 1, top - 1, right - left, bottom - top],
                    'area': (right - left) * (bottom - top),
                    'iscrowd': 0,
                }
            )
    categories = [{'id': number, 'name': name} for number, name in enumerate(CLASSES, start=1)]
    return {'images': images, 'annotations': annotations, 'categories': categories}


if __name__ == '__main__':
    main()
