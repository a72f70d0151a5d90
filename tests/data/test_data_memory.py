"""Reading videos keeps no memory: not of files that were closed, and not of frames until Python looks for cycles."""

import gc
import subprocess
import sys

import av
from video_files import MakeVideo

from hwbench.data.decoding import read_frames

# Prints the bytes of resident memory that an opening adds, after holes of the allocator were given back.
OPENINGS = """
import ctypes, gc, os, sys
from hwbench.data.decoding import VideoFile, probe

path, count = sys.argv[1], int(sys.argv[2])
info = probe(path)

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def read(times):
    for _ in range(times):
        with VideoFile(path, info) as video:
            video.read((3, 9, 15, 21))

read(300)
before = resident()
read(count)
print((resident() - before) / count)
"""


def test_no_frame_waits_for_the_collector(make_video: MakeVideo) -> None:
    path = make_video("video.mp4", options={"bf": "3"})
    gc.collect()
    gc.disable()
    try:
        read_frames(path, [3, 9, 15])
        assert not [one for one in gc.get_objects() if type(one) in (av.VideoFrame, av.Packet)]
    finally:
        gc.enable()


def test_a_thousand_openings_leave_nothing(make_video: MakeVideo) -> None:
    command = [sys.executable, "-c", OPENINGS, str(make_video("video.mp4")), "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # Bytes. An iterator of packets that is not closed loses 150, frames in cycles a thousand.
    assert float(done.stdout) < 100
