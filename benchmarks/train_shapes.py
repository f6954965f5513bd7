"""Trains a sample config on generated shapes: an SSD, FCOS, CenterNet or Keypoint R-CNN.

    python benchmarks/train_shapes.py --output DIR
    python benchmarks/train_shapes.py --sample keypoint_rcnn_resnet18_fpn_shapes --output DIR

Makes the shapes of `tfod demo`, converts them to records, trains the sample config and evaluates
it, by the commands that a user would type. Prints the average precision of boxes, and of the
keypoints of each class where the sample has them. Exits with 1 if the average precision of boxes to
reach is not reached in time.
"""

import pathlib

import click
import learned

# Sample -> minutes of training, and AP@.50 of boxes to reach.
_TO_REACH = {
    'ssd_mobilenet_v2_fpnlite_shapes': (10.0, 0.75),
    'centernet_resnet18_v1_fpn_keypoints_shapes': (15.0, 0.8),
    'keypoint_rcnn_resnet18_fpn_shapes': (15.0, 0.8),
    'fcos_resnet18_shapes': (10.0, 0.75),
    'rt_detr_resnet18_shapes': (15.0, 0.75),
}
_KEYPOINT_AP = 'Keypoints_Precision/mAP ByCategory/'


@click.command(help=__doc__)
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option(
    '--sample',
    type=click.Choice(list(_TO_REACH)),
    default=next(iter(_TO_REACH)),
    show_default=True,
    help='The sample config.',
)
@click.option('--num_train', default=2500, show_default=True, help='Training images.')
@click.option('--num_val', default=150, show_default=True, help='Validation images.')
@click.option('--num_steps', default=0, help='Training steps; 0 = as in the sample config.')
@click.option('--seed', default=0, show_default=True, help='Of data and training.')
def main(output: str, sample: str, num_train: int, num_val: int, num_steps: int, seed: int) -> None:
    folder = pathlib.Path(output)
    max_minutes, box_ap = _TO_REACH[sample]
    learned.make_shapes(folder, num_train=num_train, num_val=num_val, seed=seed)
    trained = learned.train(sample, folder, seed=seed, num_steps=num_steps, max_minutes=max_minutes)
    for name, value in sorted(trained.metrics.items()):
        if name.startswith(_KEYPOINT_AP):
            print(f'keypoint AP of {name.removeprefix(_KEYPOINT_AP)} {value:.3f}')
    learned.finish(trained, box_ap)


if __name__ == '__main__':
    main()
