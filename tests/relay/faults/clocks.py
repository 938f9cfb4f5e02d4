"""Wrong clocks: the time of day of a site is off by the number in a file, and may jump while the site runs.

A small library stands between a process and the C library (LD_PRELOAD). Monotonic clocks are left alone, as on a machine
whose time of day is set.
"""

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset_s;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("WRONG_CLOCK"), O_RDONLY);
    offset_s = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int outcome = real(clock, time);
    if (!outcome && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && offset_s) time->tv_sec += *offset_s;
    return outcome;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""
COMPILER = shutil.which("cc") or shutil.which("gcc")


class WrongClock:
    """The clock of one site; `environment` goes to its processes."""

    def __init__(self, folder: Path, name: str, offset_s: int) -> None:
        library = folder / "wrong-clock.so"
        if not library.exists():
            (folder / "wrong-clock.c").write_text(_SOURCE)
            subprocess.run(
                [str(COMPILER), "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "wrong-clock.c"), "-ldl"],
                check=True,
            )
        self._file = folder / f"{name}.clock"
        self.set(offset_s)
        self.environment = {"LD_PRELOAD": str(library), "WRONG_CLOCK": str(self._file)}

    def set(self, offset_s: int) -> None:
        """Change the offset of the running site."""
        if not self._file.exists():
            self._file.write_bytes(bytes(8))
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", offset_s))
