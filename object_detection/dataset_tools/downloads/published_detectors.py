"""Trained detectors that can be downloaded.

They are those of the TensorFlow 2 zoo, torchvision, detectron2 and the Hugging Face Hub.

No address of this table has been opened by a test: those of torchvision are from its source (0.29),
the others were written from memory of their pages.
"""

import dataclasses
from collections.abc import Mapping

from object_detection.dataset_tools.downloads.download import RemoteFile

_MEBIBYTE = 2**20


@dataclasses.dataclass(frozen=True)
class Publisher:
    """Who publishes detectors.

    Attributes:
      title: name of the collection.
      base_url: what the paths of its files are relative to.
      licence: licence of the weights, as the publisher states it.
      page: address of the page that describes them.
      data: what they were trained on.
    """

    title: str
    base_url: str
    licence: str
    page: str
    data: str = 'COCO'


TENSORFLOW_ZOO = Publisher(
    'TensorFlow 2 zoo',
    'https://storage.googleapis.com',
    'Apache 2.0',
    'https://github.com/tensorflow/models/blob/master/research/object_detection/g3doc/'
    'tf2_detection_zoo.md',
)
TORCHVISION = Publisher(
    'torchvision',
    'https://download.pytorch.org/models',
    'BSD 3-Clause, with the terms of COCO for the weights',
    'https://docs.pytorch.org/vision/stable/models.html',
)
DETECTRON2 = Publisher(
    'detectron2',
    'https://dl.fbaipublicfiles.com/detectron2',
    'CC BY-SA 3.0',
    'https://github.com/facebookresearch/detectron2/blob/main/MODEL_ZOO.md',
)
HUGGING_FACE = Publisher(
    'Hugging Face Hub',
    'https://huggingface.co',
    'Apache 2.0',
    'https://huggingface.co/models?pipeline_tag=object-detection',
    'COCO; those with o365, obj365 and obj2coco on Objects365, and but for obj365 on COCO then',
)


@dataclasses.dataclass(frozen=True)
class PublishedDetector:
    """A detector that was trained on what its publisher says.

    Attributes:
      publisher: who publishes it.
      file: a file of weights, or an archive (.tar.gz) of them with their config. The checksum of
        torchvision's is the beginning of the SHA-256, which is in the names; others have none.
      sample: name of the sample config that computes what it was trained for, without `.config`;
        '' where a config is published with it.
      setting: what of the sample config changes for its ResNet, as `--set` takes it; '' if nothing.
      beside: names of files of its config, which lie beside `file`.
      mebibytes: size of the file; None if it is not published. That of torchvision is rounded to
        0.001, so that a whole number of bytes does not follow.
      metrics: 'box', 'mask' or 'keypoint' -> AP on val2017 in %, as it is published.
    """

    publisher: Publisher
    file: RemoteFile
    sample: str = ''
    mebibytes: float | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    setting: str = ''
    beside: tuple[str, ...] = ()

    @property
    def is_archive(self) -> bool:
        """Whether the file is an archive, which is unpacked to a folder of the detector's name."""
        return not self.sample and not self.beside

    @property
    def files(self) -> list[RemoteFile]:
        """The file, and those beside it."""
        folder = self.file.path.rpartition('/')[0]
        return [self.file, *(RemoteFile(f'{folder}/{name}') for name in self.beside)]

    @property
    def accuracy(self) -> str:
        """The metrics for a line of text; '' if none are in the table."""
        return ', '.join(f'{kind} AP {value:g}' for kind, value in self.metrics.items())


# Archives by the day of their release; neither sizes nor checksums of them are published.
_ZOO_RELEASES = {
    '20200711': (
        'ssd_mobilenet_v1_fpn_640x640_coco17_tpu-8',
        'ssd_mobilenet_v2_320x320_coco17_tpu-8',
        'ssd_mobilenet_v2_fpnlite_320x320_coco17_tpu-8',
        'ssd_mobilenet_v2_fpnlite_640x640_coco17_tpu-8',
        *(
            f'ssd_resnet{depth}_v1_fpn_{size}x{size}_coco17_tpu-8'
            for depth in (50, 101, 152)
            for size in (640, 1024)
        ),
        *(f'efficientdet_d{size}_coco17_tpu-32' for size in range(8)),
        *(
            f'faster_rcnn_resnet{depth}_v1_{size}'
            for depth in (50, 101, 152)
            for size in ('640x640_coco17_tpu-8', '1024x1024_coco17_tpu-8', '800x1333_coco17_gpu-8')
        ),
        'faster_rcnn_inception_resnet_v2_640x640_coco17_tpu-8',
        'faster_rcnn_inception_resnet_v2_1024x1024_coco17_tpu-8',
        'mask_rcnn_inception_resnet_v2_1024x1024_coco17_gpu-8',
        'centernet_hg104_512x512_kpts_coco17_tpu-32',
        'centernet_hg104_1024x1024_kpts_coco17_tpu-32',
        'centernet_resnet50_v1_fpn_512x512_coco17_tpu-8',
        'centernet_resnet50_v1_fpn_512x512_kpts_coco17_tpu-8',
        'centernet_resnet101_v1_fpn_512x512_coco17_tpu-8',
        'centernet_resnet50_v2_512x512_coco17_tpu-8',
        'centernet_resnet50_v2_512x512_kpts_coco17_tpu-8',
    ),
    '20200713': ('centernet_hg104_512x512_coco17_tpu-8', 'centernet_hg104_1024x1024_coco17_tpu-32'),
    '20210210': (
        'centernet_mobilenetv2fpn_512x512_coco17_od',
        'centernet_mobilenetv2fpn_512x512_coco17_kpts',
    ),
    '20210329': ('deepmac_1024x1024_coco17',),
}
_ZOO = {
    name: PublishedDetector(
        TENSORFLOW_ZOO,
        RemoteFile(f'download.tensorflow.org/models/object_detection/tf2/{day}/{name}.tar.gz'),
    )
    for day, names in _ZOO_RELEASES.items()
    for name in names
}


def _torchvision(file: str, mebibytes: float, **metrics: float) -> PublishedDetector:
    """Returns a detector whose file is named as its sample, and then by its SHA-256."""
    name, _, checksum = file.removesuffix('.pth').rpartition('-')
    return PublishedDetector(
        TORCHVISION,
        RemoteFile(file, checksum=checksum),
        f'torchvision_{name.removesuffix("_coco")}',
        mebibytes,
        metrics,
    )


def _detectron2(path: str, **metrics: float) -> PublishedDetector:
    """Returns a detector whose config is the second folder of its path, by its schedule.

    The samples have a ResNet-50.
    """
    name = path.split('/')[1].removesuffix('_1x').removesuffix('_3x')
    family = 'ssd' if name.startswith('retinanet') else 'faster_rcnn'
    version = '_v1' if family == 'ssd' else ''
    setting = f'model.{family}.feature_extractor.type={family}_resnet101{version}_fpn_keras'
    return PublishedDetector(
        DETECTRON2,
        RemoteFile(path),
        f'detectron2_{name.replace("_101_", "_50_")}',
        metrics=metrics,
        setting=setting if '_101_' in name else '',
    )


# Files, sizes and metrics of the enumerations of weights in torchvision.models.detection.
_TORCHVISION = {
    detector.sample: detector
    for detector in (
        _torchvision('fasterrcnn_resnet50_fpn_coco-258fb6c6.pth', 159.743, box=37.0),
        _torchvision('fasterrcnn_resnet50_fpn_v2_coco-dd69338a.pth', 167.104, box=46.7),
        _torchvision('fasterrcnn_mobilenet_v3_large_fpn-fb6a3cc7.pth', 74.239, box=32.8),
        _torchvision('fasterrcnn_mobilenet_v3_large_320_fpn-907ea3f9.pth', 74.239, box=22.8),
        _torchvision('maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth', 169.84, box=37.9, mask=34.6),
        _torchvision('maskrcnn_resnet50_fpn_v2_coco-73cbd019.pth', 177.219, box=47.4, mask=41.8),
        _torchvision(
            'keypointrcnn_resnet50_fpn_coco-fc266e95.pth', 226.054, box=54.6, keypoint=65.0
        ),
        _torchvision('retinanet_resnet50_fpn_coco-eeacb38b.pth', 130.267, box=36.4),
        _torchvision('retinanet_resnet50_fpn_v2_coco-5905b1c5.pth', 146.037, box=41.5),
        _torchvision('fcos_resnet50_fpn_coco-99b0c9b7.pth', 123.608, box=39.2),
        _torchvision('ssd300_vgg16_coco-b556d3b4.pth', 135.988, box=25.1),
        _torchvision('ssdlite320_mobilenet_v3_large_coco-a79551df.pth', 13.418, box=21.3),
    )
}
# Neither sizes nor checksums of them are published.
_DETECTRON2 = {
    f'detectron2_{detector.file.path.split("/")[1]}': detector
    for detector in (
        _detectron2(
            'COCO-Detection/faster_rcnn_R_50_FPN_1x/137257794/model_final_b275ba.pkl', box=37.9
        ),
        _detectron2(
            'COCO-Detection/faster_rcnn_R_50_FPN_3x/137849458/model_final_280758.pkl', box=40.2
        ),
        _detectron2(
            'COCO-Detection/faster_rcnn_R_101_FPN_3x/137851257/model_final_f6e8b1.pkl', box=42.0
        ),
        _detectron2(
            'COCO-Detection/retinanet_R_50_FPN_1x/190397773/model_final_bfca0b.pkl', box=37.4
        ),
        _detectron2(
            'COCO-Detection/retinanet_R_50_FPN_3x/190397829/model_final_5bd44e.pkl', box=38.7
        ),
        _detectron2(
            'COCO-Detection/retinanet_R_101_FPN_3x/190397697/model_final_971ab9.pkl', box=40.4
        ),
        _detectron2(
            'COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x/137260431/model_final_a54504.pkl',
            box=38.6,
            mask=35.2,
        ),
        _detectron2(
            'COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x/137849600/model_final_f10217.pkl',
            box=41.0,
            mask=37.2,
        ),
        _detectron2(
            'COCO-InstanceSegmentation/mask_rcnn_R_101_FPN_3x/138205316/model_final_a3ec72.pkl',
            box=42.9,
            mask=38.6,
        ),
        _detectron2(
            'COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x/137261548/model_final_04e291.pkl',
            box=53.6,
            keypoint=64.0,
        ),
        _detectron2(
            'COCO-Keypoints/keypoint_rcnn_R_50_FPN_3x/137849621/model_final_a6e10b.pkl',
            box=55.4,
            keypoint=65.5,
        ),
        _detectron2(
            'COCO-Keypoints/keypoint_rcnn_R_101_FPN_3x/138363331/model_final_997cc7.pkl',
            box=56.4,
            keypoint=66.1,
        ),
        _detectron2(
            'Misc/cascade_mask_rcnn_R_50_FPN_1x/138602847/model_final_e9d89b.pkl',
            box=42.1,
            mask=36.4,
        ),
        _detectron2(
            'Misc/cascade_mask_rcnn_R_50_FPN_3x/144998488/model_final_480dd8.pkl',
            box=44.3,
            mask=38.5,
        ),
    )
}
_CONFIGS = ('config.json', 'preprocessor_config.json')


def _hugging_face(path: str, box: float | None = None) -> PublishedDetector:
    """Returns a detector of transformers; its size and checksum are not in this table."""
    return PublishedDetector(
        HUGGING_FACE,
        RemoteFile(f'{path}/resolve/main/model.safetensors'),
        beside=_CONFIGS,
        metrics={} if box is None else {'box': box},
    )


# Figures of the papers.
_HUGGING_FACE_PATHS = {
    'PekingU/rtdetr_r18vd': 46.5,
    'PekingU/rtdetr_r34vd': 48.9,
    'PekingU/rtdetr_r50vd': 53.1,
    'PekingU/rtdetr_r101vd': 54.3,
    'PekingU/rtdetr_r18vd_coco_o365': 49.2,
    'PekingU/rtdetr_r50vd_coco_o365': 55.3,
    'PekingU/rtdetr_r101vd_coco_o365': 56.2,
    'PekingU/rtdetr_v2_r18vd': 47.9,
    'PekingU/rtdetr_v2_r34vd': 49.9,
    'PekingU/rtdetr_v2_r50vd': 53.4,
    'PekingU/rtdetr_v2_r101vd': 54.3,
    'ustc-community/dfine-nano-coco': 42.8,
    'ustc-community/dfine-small-coco': 48.5,
    'ustc-community/dfine-medium-coco': 52.3,
    'ustc-community/dfine-large-coco': 54.0,
    'ustc-community/dfine-xlarge-coco': 55.8,
    'ustc-community/dfine-small-obj365': None,
    'ustc-community/dfine-medium-obj365': None,
    'ustc-community/dfine-large-obj365': None,
    'ustc-community/dfine-xlarge-obj365': None,
    'ustc-community/dfine-small-obj2coco': None,
    'ustc-community/dfine-medium-obj2coco': None,
    'ustc-community/dfine-large-obj2coco-e25': None,
    'ustc-community/dfine-xlarge-obj2coco': None,
    'Roboflow/rf-detr-nano': None,
    'Roboflow/rf-detr-small': None,
    'Roboflow/rf-detr-medium': None,
    'Roboflow/rf-detr-base': None,
    'Roboflow/rf-detr-large': None,
    'facebook/detr-resnet-50': 42.0,
}
_HUGGING_FACE = {
    path.rpartition('/')[2]: _hugging_face(path, box) for path, box in _HUGGING_FACE_PATHS.items()
}
DETECTORS = _ZOO | _TORCHVISION | _DETECTRON2 | _HUGGING_FACE
