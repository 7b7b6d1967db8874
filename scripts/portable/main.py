"""The `__main__` of hangdoc.pyz: unpacks hangdoc and what it needs into a private directory, once, and starts it from there.

Extension modules can't be loaded from an archive. This file must be understood by the oldest Python that a node may have.
"""

import os
import stat
import sys

OLDEST, NEWEST = [tuple(int(part) for part in version.split(",")) for version in ("@OLDEST@", "@NEWEST@")]
DIGEST = "@DIGEST@"
ARCHIVE = os.path.dirname(os.path.abspath(__file__))
USAGE = 2
PREFIX = "hangdoc-unpacked-"
CONTENTS = "CONTENTS"  # in what is unpacked: for each directory a line with its name and those of its files


def suits():
    """Whether this interpreter can load the extension modules in the archive."""
    return OLDEST <= sys.version_info[:2] <= NEWEST and sys.implementation.name == "cpython" and "t" not in sys.abiflags


def is_private(path):
    """Whether only this user and root can have put anything into a directory, nor exchange it or one above it."""
    trusted = (0, os.geteuid(), os.stat("/").st_uid)
    closed = False
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        try:
            about = os.lstat("/".join(parts[:count]) or "/")
        except OSError:
            return False
        if not stat.S_ISDIR(about.st_mode) or about.st_uid not in trusted:
            return False
        if not closed and about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX:
            return False
        closed = closed or not about.st_mode & 0o011  # nobody else gets below it
    return True


def list_caches():
    """The directories for this and other versions of hangdoc, the preferred first."""
    import pwd

    homes = [os.environ.get("XDG_CACHE_HOME"), os.path.expanduser("~/.cache")]
    try:
        homes.append(os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".cache"))
    except KeyError:
        pass
    absolute = [os.path.realpath(home) for home in homes if home and home.startswith("/")]
    return [os.path.join(home, "hangdoc") for home in dict.fromkeys(absolute)]


def find_unpacked():
    """The directory with everything, and whether it must be removed at the end."""
    machine = os.uname()[4]
    name = "%s-cp%d%d-%s" % (DIGEST, sys.version_info[0], sys.version_info[1], machine)
    caches = list_caches()
    problems = []
    umask = os.umask(0o077)
    try:
        for cache in caches:
            final = os.path.join(cache, name)
            if is_private(final) and (is_whole(final) or mend(final, problems)):
                return final, False
        for cache in caches:
            unpacked = keep_unpacked(cache, name, problems)
            if unpacked is not None:
                return unpacked, False
        for place in dict.fromkeys(("/dev/shm", os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp")):
            unpacked = unpack_below(place, problems) if is_private(os.path.realpath(place)) else None
            if unpacked is not None:
                return unpacked, True
    finally:
        os.umask(umask)
    problem = "; ".join(problems)
    return fail("can't unpack itself (%s). Name a directory of your own: XDG_CACHE_HOME=DIRECTORY" % problem)


def is_whole(folder):
    """Whether no file is missing: programs that clean caches remove single old files."""
    try:
        with open(os.path.join(folder, CONTENTS)) as lines:
            for line in lines:
                names = line.rstrip("\n").split("\t")
                if not set(names[1:]).issubset(os.listdir(os.path.join(folder, names[0]))):
                    return False
    except OSError:
        return False
    return True


def mend(folder, problems):
    """Unpack what is missing. What is there stays as it is, because another hangdoc may use it."""
    try:
        unpack(folder)
    except OSError as error:
        problems.append("%s lacks files: %s" % (folder, error.strerror or error))
        return False
    return True


def keep_unpacked(cache, name, problems):
    """Unpack into a directory that stays; None if that is not possible."""
    existing = cache
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if not is_private(existing):
        problems.append("others can change %s" % existing)
        return None
    try:
        os.makedirs(cache, 0o700, exist_ok=True)
    except OSError as error:
        problems.append("%s: %s" % (cache, error.strerror))
        return None
    trial = unpack_below(cache, problems)
    if trial is None:
        return None
    final = os.path.join(cache, name)
    try:
        os.rename(trial, final)
    except OSError:  # another hangdoc was faster
        remove(trial)
    return final if is_private(final) else None


def unpack_below(place, problems):
    """Unpack into a new directory in a place; None if that is not possible."""
    import tempfile

    folder = None
    try:
        if os.statvfs(place).f_flag & os.ST_NOEXEC:
            problems.append("%s is mounted noexec" % place)
            return None
        remove_leftovers(place)
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
        hold(folder)
        unpack(folder)
    except OSError as error:
        problems.append("%s: %s" % (place, error.strerror or error))
        remove(folder)
        return None
    except BaseException:
        remove(folder)
        raise
    return folder


def hold(folder):
    """Lock a directory until this process and its forks have ended. False if another process holds it or it can't be locked."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


def remove_leftovers(place):
    """Remove what processes of this user left that were killed, if it is older than an hour and nobody holds it."""
    import time

    for entry in os.listdir(place):
        path = os.path.join(place, entry)
        try:
            if entry.startswith(PREFIX):
                about = os.lstat(path)
                if about.st_uid == os.geteuid() and about.st_mtime < time.time() - 3600 and hold(path):
                    remove(path)
        except OSError:
            pass


def unpack(folder):
    """Unpack what this interpreter and machine need."""
    import io
    import zipfile

    machine = os.uname()[4]
    own = ".cpython-%d%d-" % sys.version_info[:2]
    os.umask(0o022)  # the directory is closed; py-spy may be run with fewer rights
    contents = {}
    with zipfile.ZipFile(ARCHIVE) as archive:
        if machine + ".zip" not in archive.namelist() or not os.confstr("CS_GNU_LIBC_VERSION"):
            fail("this file is for Linux with glibc on @MACHINES@, and this is %s." % machine)
        for member in ("any.zip", machine + ".zip"):
            with zipfile.ZipFile(io.BytesIO(archive.read(member))) as inner:
                for item in inner.infolist():
                    if ".cpython-" in item.filename and own not in item.filename:
                        continue
                    directory, base = os.path.split(item.filename)
                    contents.setdefault(directory, []).append(base)
                    path = os.path.join(folder, item.filename)
                    if not os.path.exists(path):
                        os.makedirs(os.path.join(folder, directory), exist_ok=True)
                        put(path, inner.read(item), 0o755 if directory == "bin" else 0o644)
    lines = ["\t".join([directory] + names) + "\n" for directory, names in sorted(contents.items())]
    put(os.path.join(folder, CONTENTS), "".join(lines).encode(), 0o644)


def put(path, content, mode):
    """Write a file that is there completely or not at all."""
    part = "%s.%d" % (path, os.getpid())
    with open(part, "wb") as file:
        file.write(content)
    os.chmod(part, mode)
    os.rename(part, path)


def remove(folder):
    """Remove a directory with all that is in it."""
    import shutil

    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def remove_at_end(folder):
    """Remove a directory when this process and its forks have ended, however they end: then nobody holds the pipe any more."""
    import signal

    ended, held = os.pipe()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(ended)
        return
    if os.fork() == 0:  # a child of nobody's, for which hangdoc does not wait
        os.close(held)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        os.chdir("/")
        os.read(ended, 1)
        remove(folder)
    os._exit(0)


def fail(problem):
    """End with one sentence."""
    sys.stderr.write("hangdoc: %s\n" % problem)
    sys.exit(USAGE)


def leave(number, frame):
    """End, and remove what was begun."""
    sys.exit(128 + number)


def start():
    """Start hangdoc."""
    import signal

    ended = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in ended:
        signal.signal(number, leave)
    unpacked, temporary = None, False
    try:
        unpacked, temporary = find_unpacked()
        if temporary:
            remove_at_end(unpacked)
    except BaseException as error:
        if temporary:
            remove(unpacked)
        if isinstance(error, KeyboardInterrupt):
            sys.exit(130)
        raise
    for number in ended:
        signal.signal(number, signal.SIG_DFL)
    sys.dont_write_bytecode, sys.pycache_prefix = temporary, None
    sys.path[0] = unpacked
    globals()["__file__"] = os.path.join(ARCHIVE, "__main__.py")  # hangdoc.portable reads it, wherever hangdoc has gone
    from hangdoc.cli.main import main

    main()


if not suits():
    # The archive begins with a shell script that looks for another one.
    os.execv("/bin/sh", ["sh", ARCHIVE] + sys.argv[1:])
start()
