"""Addresses, sizes and checksums of COCO 2017 and of weights of backbones."""

import dataclasses

from object_detection.dataset_tools.downloads.download import RemoteFile

# The second is the same bucket under its storage provider's name, for networks that only let
# encrypted connections out; the first has no valid certificate. Checksums hold for both.
COCO_BASE_URLS = (
    'http://images.cocodataset.org',
    'https://s3.amazonaws.com/images.cocodataset.org',
)

# Sizes and SHA-256 are from url_checksums/coco.txt of TensorFlow Datasets 4.9.10, which lists none
# for the unlabeled images.
_TRAIN_IMAGES = RemoteFile(
    'zips/train2017.zip',
    19336861798,
    '69a8bb58ea5f8f99d24875f21416de2e9ded3178e903f1f7603e283b9e06d929',
)
_VAL_IMAGES = RemoteFile(
    'zips/val2017.zip',
    815585330,
    '4f7e2ccb2866ec5041993c9cf2a952bbed69647b115d0f74da7ce8f4bef82f05',
)
_TRAIN_AND_VAL_ANNOTATIONS = RemoteFile(
    'annotations/annotations_trainval2017.zip',
    252907541,
    '113a836d90195ee1f884e704da6304dfaaecff1f023f49b6ca93c4aaae470268',
)
_TEST_IMAGES = RemoteFile(
    'zips/test2017.zip',
    6646970404,
    'c7908c3c9f94ba2f3340ebbeec58c25db6be8774f18d68c2f15d0e369d95baba',
)
_TEST_INFO = RemoteFile(
    'annotations/image_info_test2017.zip',
    1144034,
    'e52f412dd7195ac8f98d782b44c6dd30ea10241e9f42521f67610fbe055a74f8',
)

# Split -> its archives.
COCO2017 = {
    'train2017': (_TRAIN_IMAGES, _TRAIN_AND_VAL_ANNOTATIONS),
    'val2017': (_VAL_IMAGES, _TRAIN_AND_VAL_ANNOTATIONS),
    'test2017': (_TEST_IMAGES, _TEST_INFO),
    'unlabeled2017': (
        RemoteFile('zips/unlabeled2017.zip'),
        RemoteFile('annotations/image_info_unlabeled2017.zip'),
    ),
}


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights of a backbone without its classifier, as Keras applications publish them.

    Attributes:
      file: HDF5 file; its checksum is a SHA-256 of ConvNeXt, and an MD5 sum of others, since no
        other is published. MobileNets have none.
      network: function of keras.applications.
      extractors: feature extractor types of this toolkit that use this backbone.
    """

    file: RemoteFile
    network: str
    extractors: tuple[str, ...] = ()

    @property
    def backbone(self) -> str:
        """The value of the field `backbone` of a config that has these weights."""
        if self.network.startswith('EfficientNetB'):
            # Keras' own normalizes images in another way without these weights.
            return f'efficientnet-{self.network[-2:].lower()}'
        return f'keras:{self.network}'


WEIGHTS_BASE_URLS = ('https://storage.googleapis.com',)


def _file(path: str, checksum: str = '') -> RemoteFile:
    return RemoteFile(f'tensorflow/keras-applications/{path}', checksum=checksum)


def _without_top(folder: str, network: str, checksum: str, *extractors: str) -> Weights:
    """Returns the weights of a network whose files have its name in lower case."""
    name = f'{network.lower()}_weights_tf_dim_ordering_tf_kernels_notop.h5'
    return Weights(_file(f'{folder}/{name}', checksum), network, extractors)


def _resnet_v1(depth: int, md5: str, *others: str) -> Weights:
    extractors = (
        f'faster_rcnn_resnet{depth}_fpn_keras',
        f'faster_rcnn_resnet{depth}_keras',
        f'ssd_resnet{depth}_v1_fpn_keras',
    )
    return _without_top('resnet', f'ResNet{depth}', md5, *extractors, *others)


def _mobilenet_v3(variant: str, md5: str) -> Weights:
    name = f'weights_mobilenet_v3_{variant}_224_1.0_float_no_top_v2.h5'
    return Weights(_file(f'mobilenet_v3/{name}', md5), f'MobileNetV3{variant.capitalize()}')


def _efficientnet(variant: str, md5: str) -> Weights:
    return Weights(
        RemoteFile(f'keras-applications/efficientnet{variant}_notop.h5', checksum=md5),
        f'EfficientNet{variant.upper()}',
        (f'ssd_efficientnet-{variant}_bifpn_keras',),
    )


def _efficientnet_v2(variant: str, md5: str) -> Weights:
    file = _file(f'efficientnet_v2/efficientnetv2-{variant}_notop.h5', md5)
    return Weights(file, f'EfficientNetV2{variant.upper()}')


def _convnext(variant: str, sha256: str) -> Weights:
    file = _file(f'convnext/convnext_{variant.lower()}_notop.h5', sha256)
    return Weights(file, f'ConvNeXt{variant}')


# Addresses and checksums are from the source of keras.applications (Keras 3.15).
WEIGHTS = {
    'resnet50': _resnet_v1(50, '4d473c1dd8becc155b73f8504c6f6626', 'resnet_v1_50_fpn'),
    'resnet101': _resnet_v1(101, '88cf7a10940856eca736dc7b7e228a21', 'resnet_v1_101_fpn'),
    'resnet152': _resnet_v1(152, 'ee4c566cf9a93f14d82f913c2dc6dd0c'),
    'resnet50v2': _without_top(
        'resnet', 'ResNet50V2', 'fac2f116257151a9d068a22e544a4917', 'resnet_v2_50'
    ),
    'resnet101v2': _without_top(
        'resnet', 'ResNet101V2', 'c0ed64b8031c3730f411d2eb4eea35b5', 'resnet_v2_101'
    ),
    'resnet152v2': _without_top('resnet', 'ResNet152V2', 'ed17cf2e0169df9d443503ef94b23b33'),
    'inception_v3': Weights(
        _file(
            'inception_v3/inception_v3_weights_tf_dim_ordering_tf_kernels_notop.h5',
            'bcbd6486424b2319ff4ef7d526e38f63',
        ),
        'InceptionV3',
    ),
    'inception_resnet_v2': Weights(
        _file(
            'inception_resnet_v2/inception_resnet_v2_weights_tf_dim_ordering_tf_kernels_notop.h5',
            'd19885ff4a710c122648d3b5c3b684e4',
        ),
        'InceptionResNetV2',
        ('faster_rcnn_inception_resnet_v2_keras',),
    ),
    'xception': _without_top('xception', 'Xception', 'b0042744bf5b25fce3cb969f33bebb97'),
    'vgg16': _without_top('vgg16', 'VGG16', '6d6bbae143d832006294945121d1f1fc'),
    'vgg19': _without_top('vgg19', 'VGG19', '253f8cb515780f3b799900260a226db6'),
    'densenet121': _without_top('densenet', 'DenseNet121', '30ee3e1110167f948a6b9946edeeb738'),
    'densenet169': _without_top('densenet', 'DenseNet169', 'b8c4d4c20dd625c148057b9ff1c1176b'),
    'densenet201': _without_top('densenet', 'DenseNet201', 'c13680b51ded0fb44dff2d8f86ac8bb1'),
    'nasnet_mobile': Weights(
        _file('nasnet/NASNet-mobile-no-top.h5', '1ed92395b5b598bdda52abe5c0dbfd63'), 'NASNetMobile'
    ),
    'nasnet_large': Weights(
        _file('nasnet/NASNet-large-no-top.h5', 'd81d89dc07e6e56530c4e77faddd61b5'), 'NASNetLarge'
    ),
    'mobilenet': Weights(
        _file('mobilenet/mobilenet_1_0_224_tf_no_top.h5'),
        'MobileNet',
        ('ssd_mobilenet_v1_fpn_keras', 'ssd_mobilenet_v1_keras'),
    ),
    'mobilenet_v2': Weights(
        _file('mobilenet_v2/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5'),
        'MobileNetV2',
        (
            'ssd_mobilenet_v2_fpn_keras',
            'ssd_mobilenet_v2_keras',
            'mobilenet_v2',
            'mobilenet_v2_fpn',
            'mobilenet_v2_fpn_sep_conv',
        ),
    ),
    'mobilenet_v3_large': _mobilenet_v3('large', '07fb09a5933dd0c8eaafa16978110389'),
    'mobilenet_v3_small': _mobilenet_v3('small', 'd3e8ec802a04aa4fc771ee12a9a9b836'),
    'efficientnetb0': _efficientnet('b0', '50bc09e76180e00e4465e1a485ddc09d'),
    'efficientnetb1': _efficientnet('b1', '74c4e6b3e1f6a1eea24c589628592432'),
    'efficientnetb2': _efficientnet('b2', '111f8e2ac8aa800a7a99e3239f7bfb39'),
    'efficientnetb3': _efficientnet('b3', 'af6d107764bb5b1abb91932881670226'),
    'efficientnetb4': _efficientnet('b4', 'ebc24e6d6c33eaebbd558eafbeedf1ba'),
    'efficientnetb5': _efficientnet('b5', '38879255a25d3c92d5e44e04ae6cec6f'),
    'efficientnetb6': _efficientnet('b6', '9ecce42647a20130c1f39a5d4cb75743'),
    'efficientnetb7': _efficientnet('b7', 'cbcfe4450ddf6f3ad90b1b398090fe4a'),
    'efficientnetv2-b0': _efficientnet_v2('b0', '893217f2bb855e2983157299931e43ff'),
    'efficientnetv2-b1': _efficientnet_v2('b1', '0e80663031ca32d657f9caa404b6ec37'),
    'efficientnetv2-b2': _efficientnet_v2('b2', '1dfe2e7a5d45b6632553a8961ea609eb'),
    'efficientnetv2-b3': _efficientnet_v2('b3', 'f6abf7b5849ac99a89b50dd3fd532856'),
    'efficientnetv2-s': _efficientnet_v2('s', 'af0682fb74e8c54910f2d4393339c070'),
    'efficientnetv2-m': _efficientnet_v2('m', '1b8dc055df72dde80d614482840fe342'),
    'efficientnetv2-l': _efficientnet_v2('l', 'b0b66b5c863aef5b46e8608fe1711615'),
    'convnext_tiny': _convnext(
        'Tiny', 'd547c096cabd03329d7be5562c5e14798aa39ed24b474157cef5e85ab9e49ef1'
    ),
    'convnext_small': _convnext(
        'Small', '6fc8009faa2f00c1c1dfce59feea9b0745eb260a7dd11bee65c8e20843da6eab'
    ),
    'convnext_base': _convnext(
        'Base', '40a20c5548a5e9202f69735ecc06c990e6b7c9d2de39f0361e27baeb24cb7c45'
    ),
    'convnext_large': _convnext(
        'Large', '96f02b6f0753d4f543261bc9d09bed650f24dd6bc02ddde3066135b63d23a1cd'
    ),
    'convnext_xlarge': _convnext(
        'XLarge', 'de3f8a54174130e0cecdc71583354753d557fcf1f4487331558e2a16ba0cfe05'
    ),
}
