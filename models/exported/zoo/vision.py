"""Networks of torchvision and timm for zoo.py, with random weights and so small that a core trains them in seconds."""

import functools

import timm
import torch
import torchvision.models as tv
from torch import nn
from program import CLASSES, ROWS, Program, image_program

RESIDUAL = {
    "resnet_basic": {"block": tv.resnet.BasicBlock},
    "resnet_bottleneck": {"block": tv.resnet.Bottleneck},
    "resnext": {"block": tv.resnet.Bottleneck, "groups": 4, "width_per_group": 8},
    "wide_resnet": {"block": tv.resnet.Bottleneck, "width_per_group": 128},
}

TORCHVISION = {
    "squeezenet": (tv.squeezenet1_1, 64, {}),
    "googlenet": (tv.googlenet, 64, {"aux_logits": False, "init_weights": False}),
    "inception_v3": (tv.inception_v3, 96, {"aux_logits": False, "init_weights": False}),
    "shufflenet_v2": (tv.shufflenet_v2_x0_5, 64, {}),
    "mobilenet_v2": (tv.mobilenet_v2, 64, {"width_mult": 0.25}),
    "mobilenet_v3": (tv.mobilenet_v3_small, 64, {}),
    "mnasnet": (tv.mnasnet0_5, 64, {}),
    "efficientnet": (tv.efficientnet_b0, 32, {}),
    "regnet": (tv.regnet_y_400mf, 32, {}),
}

# Models of timm by name: the size of an image, and what makes the model smaller.
TIMM = {
    "resnet10t": (64, {}),
    "resnest14d": (64, {}),
    "nf_resnet26": (64, {}),
    "convnext_atto": (64, {"depths": (1, 1, 1, 1), "dims": (8, 16, 32, 64)}),
    "vit_tiny_patch16_224": (32, {"img_size": 32, "patch_size": 8, "depth": 2}),
    "deit_tiny_distilled_patch16_224": (32, {"img_size": 32, "patch_size": 8, "depth": 2}),
    "beit_base_patch16_224": (32, {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 4}),
    "eva02_tiny_patch14_224": (32, {"img_size": 32, "patch_size": 8, "depth": 2}),
    "swin_tiny_patch4_window7_224": (32, {"img_size": 32, "window_size": 4, "embed_dim": 24, "depths": (1, 1), "num_heads": (2, 4)}),
    "efficientnet_lite0": (32, {}),
    "mobilenetv4_conv_small": (64, {}),
    "edgenext_xx_small": (64, {}),
    "mobilevit_xxs": (64, {}),
    "ghostnet_050": (64, {}),
    "levit_128s": (64, {"img_size": 64}),
    "fastvit_t8": (64, {}),
}  # fmt: skip


def residual(block, **options):
    return image_program(tv.ResNet(block, [1, 1, 1, 1], num_classes=CLASSES, **options), 32)


def torchvision_program(make, size, options):
    return image_program(make(weights=None, num_classes=CLASSES, **options), size)


def timm_program(name, size, options):
    return image_program(timm.create_model(name, num_classes=CLASSES, **options), size)


def mixer():
    net = timm.models.mlp_mixer.MlpMixer(num_classes=CLASSES, img_size=32, patch_size=8, num_blocks=2, embed_dim=32)
    return image_program(net, 32)


def poolformer():
    pooling = timm.models.metaformer.Pooling
    net = timm.models.metaformer.MetaFormer(
        depths=(1, 1, 1, 1), dims=(8, 16, 32, 64), token_mixers=pooling, num_classes=CLASSES
    )
    return image_program(net, 64)


def vgg():
    features = tv.vgg.make_layers([8, "M", 16, "M", 32, "M"], batch_norm=True)
    net = tv.VGG(nn.Sequential(*features, nn.Conv2d(32, 512, 1)), num_classes=CLASSES)
    net.classifier = nn.Sequential(nn.Linear(512 * 49, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, CLASSES))
    return image_program(net, 32)


def densenet():
    return image_program(tv.DenseNet(8, (2, 2, 2, 2), 16, num_classes=CLASSES), 64)


def convnext():
    blocks = [
        tv.convnext.CNBlockConfig(8, 16, 1),
        tv.convnext.CNBlockConfig(16, 32, 2),
        tv.convnext.CNBlockConfig(32, None, 1),
    ]
    return image_program(tv.ConvNeXt(blocks, stochastic_depth_prob=0.1, num_classes=CLASSES), 32)


def vit():
    return image_program(tv.VisionTransformer(32, 8, 2, 2, 32, 64, dropout=0.1, num_classes=CLASSES), 32)


def swin(block):
    options = {"embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": [4, 4], "num_classes": CLASSES}
    if block:
        options.update(block=block, downsample_layer=tv.swin_transformer.PatchMergingV2)
    return image_program(tv.SwinTransformer(patch_size=[2, 2], **options), 32)


def maxvit():
    net = tv.MaxVit((32, 32), 16, 4, [16, 32], [1, 1], 8, stochastic_depth_prob=0.1, num_classes=CLASSES)
    return image_program(net, 32)


class Out(nn.Module):
    """The logits of a segmentation network."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        return self.net(images)["out"]


def segmentation(make, **options):
    net = Out(make(weights=None, weights_backbone=None, num_classes=CLASSES, **options))
    return Program(net, [torch.rand(ROWS, 3, 64, 64)], torch.randint(CLASSES, (ROWS, 64, 64)))


def fcn():
    backbone = tv.ResNet(tv.resnet.BasicBlock, [1, 1, 1, 1])
    backbone = tv._utils.IntermediateLayerGetter(backbone, {"layer3": "out"})
    net = Out(tv.segmentation.FCN(backbone, tv.segmentation.fcn.FCNHead(256, CLASSES)))
    return Program(net, [torch.rand(ROWS, 3, 32, 32)], torch.randint(CLASSES, (ROWS, 32, 32)))


class Detector(nn.Module):
    """A feature pyramid and the heads of RetinaNet: scores and boxes of every anchor, without the choice among them."""

    def __init__(self):
        super().__init__()
        self.backbone = tv.detection.backbone_utils.resnet_fpn_backbone(
            backbone_name="resnet18", weights=None, trainable_layers=5
        )
        self.head = tv.detection.retinanet.RetinaNetHead(256, 3, CLASSES)

    def forward(self, images):
        features = list(self.backbone(images).values())
        outputs = self.head(features)
        return outputs["cls_logits"].mean(1), outputs["bbox_regression"]


class Video(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = tv.video.VideoResNet(
            tv.video.resnet.BasicBlock,
            [tv.video.resnet.Conv3DSimple] * 4,
            [1, 1, 1, 1],
            tv.video.resnet.BasicStem,
            CLASSES,
        )

    def forward(self, frames):
        return self.net(frames)


PROGRAMS = {
    **{f"torchvision/{name}": functools.partial(residual, **options) for name, options in RESIDUAL.items()},
    **{f"torchvision/{name}": functools.partial(torchvision_program, *args) for name, args in TORCHVISION.items()},
    "torchvision/vgg": vgg,
    "torchvision/densenet": densenet,
    "torchvision/convnext": convnext,
    "torchvision/vit": vit,
    "torchvision/swin": functools.partial(swin, None),
    "torchvision/swin_v2": functools.partial(swin, tv.swin_transformer.SwinTransformerBlockV2),
    "torchvision/maxvit": maxvit,
    "torchvision/fcn": fcn,
    "torchvision/lraspp": functools.partial(segmentation, tv.segmentation.lraspp_mobilenet_v3_large),
    "torchvision/deeplab_v3": functools.partial(segmentation, tv.segmentation.deeplabv3_mobilenet_v3_large),
    "torchvision/retinanet": lambda: image_program(Detector(), 64),
    "torchvision/video_resnet": lambda: Program(
        Video(), [torch.rand(ROWS, 3, 4, 16, 16)], torch.randint(CLASSES, (ROWS,))
    ),
    "timm/mixer": mixer,
    "timm/poolformer": poolformer,
    **{f"timm/{name}": functools.partial(timm_program, name, *args) for name, args in TIMM.items()},
}
