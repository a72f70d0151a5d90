"""Decoding, clip sampling, data sets, transforms and the built-in synthetic sets."""

from hwbench.data.audio import AudioWindow, Sound, read_sound
from hwbench.data.augmentations import Augmentation, TransformSpec, augmentation
from hwbench.data.builtin import SYNTHETIC
from hwbench.data.clips import ClipSpec, Tail, centred_clip, random_clip, random_clips, sliding_clips, uniform_clips
from hwbench.data.conventions import Convention, conventions
from hwbench.data.datasets import TestClips, TrainingClips
from hwbench.data.decoding import VideoFile, VideoInfo, probe, read_frames
from hwbench.data.failures import DecodingFailure, FailurePolicy, Failures
from hwbench.data.flow_cache import FlowCache
from hwbench.data.flow_methods import DisFlow, RaftFlow, TvL1Flow
from hwbench.data.flow_stream import FlowStream
from hwbench.data.imu import ImuSpec, read_imu
from hwbench.data.mel import MelScale, MelSpec
from hwbench.data.modalities import Audio, FlowFiles, Imu, Modalities, OpticalFlow
from hwbench.data.readers import ListedVideo, Listing, Part, listing_of
from hwbench.data.reading import Reading
from hwbench.data.samples import Batch, Sample, collate
from hwbench.data.sources import default_clip, open_dataset, open_splits, stays_in_memory
from hwbench.data.spec_augment import SpecAugment
from hwbench.data.synthetic import SyntheticSpec
from hwbench.data.tracks import Track
from hwbench.data.transforms import (
    Normalisation,
    PictureSpec,
    RandomResizedCrop,
    Resize,
    ScaleJitter,
    TestTransform,
    TrainTransform,
)
from hwbench.data.videos import Splits, VideoList, read_splits

__all__ = [
    "SYNTHETIC",
    "Audio",
    "AudioWindow",
    "Augmentation",
    "Batch",
    "ClipSpec",
    "Convention",
    "DecodingFailure",
    "DisFlow",
    "FailurePolicy",
    "Failures",
    "FlowCache",
    "FlowFiles",
    "FlowStream",
    "Imu",
    "ImuSpec",
    "ListedVideo",
    "Listing",
    "MelScale",
    "MelSpec",
    "Modalities",
    "Normalisation",
    "OpticalFlow",
    "Part",
    "PictureSpec",
    "RaftFlow",
    "RandomResizedCrop",
    "Reading",
    "Resize",
    "Sample",
    "ScaleJitter",
    "Sound",
    "SpecAugment",
    "Splits",
    "SyntheticSpec",
    "Tail",
    "TestClips",
    "TestTransform",
    "Track",
    "TrainTransform",
    "TrainingClips",
    "TransformSpec",
    "TvL1Flow",
    "VideoFile",
    "VideoInfo",
    "VideoList",
    "augmentation",
    "centred_clip",
    "collate",
    "conventions",
    "default_clip",
    "listing_of",
    "open_dataset",
    "open_splits",
    "probe",
    "random_clip",
    "random_clips",
    "read_frames",
    "read_imu",
    "read_sound",
    "read_splits",
    "sliding_clips",
    "stays_in_memory",
    "uniform_clips",
]
