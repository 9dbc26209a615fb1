/* What LD_PRELOAD puts between a process and its disk, so that tests can let single calls fail, or the process die.

   The environment names a file, KLAMM_TEST_DISK, which is read at every call that is looked at. Its lines:
       <action> <call> <part of the path> [<skip>]
   `action` is an errno, or `kill` (SIGKILL before the call is made), or `trace` (the call is noted in KLAMM_TEST_DISK.trace).
   `call` is one of open create (an open that may make the file) pwrite pread ftruncate sync rename unlink mkdir rmdir sendfile, or `*` for those that change
   something. The first `skip` calls that match pass. A line `clock <seconds>` sets the wall clock forward or back.
   Only paths below KLAMM_TEST_ROOT are looked at. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST_RULES 16
static __thread int inside;
static int passed[MOST_RULES];
static const char *control, *root;

__attribute__((constructor)) static void begin(void) {
    control = getenv("KLAMM_TEST_DISK");
    root = getenv("KLAMM_TEST_ROOT");
}

static void note(const char *call, const char *path) {
    char name[4096], line[4300];
    snprintf(name, sizeof name, "%s.trace", control);
    FILE *out = fopen(name, "a");
    if (!out) return;
    int size = snprintf(line, sizeof line, "%s %s\n", call, path);
    fwrite(line, 1, size, out);
    fclose(out);
}

/* 0, or the errno with which the call is to fail. */
static int fate(const char *call, const char *path, int changes) {
    if (inside || !control || !root || !path || !strstr(path, root)) return 0;
    inside = 1;
    int result = 0, number = -1, saved = errno;
    FILE *rules = fopen(control, "r");
    char line[4300], action[16], wanted[16], part[4096];
    while (rules && number + 1 < MOST_RULES && fgets(line, sizeof line, rules)) {
        int skip = 0;
        number++;
        if (sscanf(line, "%15s %15s %4095s %d", action, wanted, part, &skip) < 3) continue;
        if (strcmp(wanted, call) && !(changes && !strcmp(wanted, "*"))) continue;
        if (!strstr(path, part)) continue;
        if (!strcmp(action, "trace")) { note(call, path); continue; }
        if (__sync_fetch_and_add(&passed[number], 1) < skip) continue;
        if (!strcmp(action, "kill")) { fclose(rules); kill(getpid(), SIGKILL); pause(); }
        result = atoi(action);
        break;
    }
    if (rules) fclose(rules);
    errno = saved;
    inside = 0;
    return result;
}

static const char *path_of(int fd, char *buffer, size_t size) {
    char name[64];
    if (!control || inside) return NULL;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, buffer, size - 1);
    if (length < 0) return NULL;
    buffer[length] = 0;
    return buffer;
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, name)
#define FAIL(call, path, changes) do { int code = fate(call, path, changes); if (code) { errno = code; return -1; } } while (0)
#define FAIL_FD(call, fd, changes) char buffer[4096]; FAIL(call, path_of(fd, buffer, sizeof buffer), changes)

#define OPEN(symbol) \
    int symbol(const char *path, int flags, ...) { \
        REAL(int, #symbol, const char *, int, ...); \
        va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
        FAIL(flags & O_CREAT ? "create" : "open", path, flags & O_CREAT); \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define PWRITE(symbol) \
    ssize_t symbol(int fd, const void *data, size_t size, off64_t at) { \
        REAL(ssize_t, #symbol, int, const void *, size_t, off64_t); \
        FAIL_FD("pwrite", fd, 1); \
        return real(fd, data, size, at); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PREAD(symbol) \
    ssize_t symbol(int fd, void *data, size_t size, off64_t at) { \
        REAL(ssize_t, #symbol, int, void *, size_t, off64_t); \
        FAIL_FD("pread", fd, 0); \
        return real(fd, data, size, at); \
    }
PREAD(pread)
PREAD(pread64)

#define PREADV2(symbol) \
    ssize_t symbol(int fd, const struct iovec *parts, int count, off64_t at, int flags) { \
        REAL(ssize_t, #symbol, int, const struct iovec *, int, off64_t, int); \
        FAIL_FD("pread", fd, 0); \
        return real(fd, parts, count, at, flags); \
    }
PREADV2(preadv2)
PREADV2(preadv64v2)

#define SENDFILE(symbol) \
    ssize_t symbol(int out, int in, off64_t *at, size_t size) { \
        REAL(ssize_t, #symbol, int, int, off64_t *, size_t); \
        FAIL_FD("sendfile", in, 0); \
        return real(out, in, at, size); \
    }
SENDFILE(sendfile)
SENDFILE(sendfile64)

#define TRUNCATE(symbol) \
    int symbol(int fd, off64_t size) { \
        REAL(int, #symbol, int, off64_t); \
        FAIL_FD("ftruncate", fd, 1); \
        return real(fd, size); \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define SYNC(symbol) \
    int symbol(int fd) { \
        REAL(int, #symbol, int); \
        FAIL_FD("sync", fd, 1); \
        return real(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    FAIL("rename", from, 1);
    return real(from, to);
}
#define ONE_PATH(symbol) \
    int symbol(const char *path) { \
        REAL(int, #symbol, const char *); \
        FAIL(#symbol, path, 1); \
        return real(path); \
    }
ONE_PATH(unlink)
ONE_PATH(rmdir)
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    FAIL("mkdir", path, 1);
    return real(path, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(clock, now);
    static long shift;
    static time_t looked;
    if (clock == CLOCK_REALTIME && control && !inside && now->tv_sec != looked) {
        inside = 1;
        looked = now->tv_sec;
        FILE *rules = fopen(control, "r");
        char line[4300];
        while (rules && fgets(line, sizeof line, rules)) sscanf(line, "clock %ld", &shift);
        if (rules) fclose(rules);
        inside = 0;
    }
    if (clock == CLOCK_REALTIME) now->tv_sec += shift;
    return result;
}
