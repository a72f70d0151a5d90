/* Writes down what a program does to the files below one folder: loaded before libc (LD_PRELOAD) by power.py.
 *
 * A record is a line "KIND INODE NUMBER LENGTH LENGTH\n" and then as many bytes as the two lengths say:
 *   C inode 0 path     a file was created           D inode 0 path   a folder was made
 *   W inode offset data  bytes were written         Z inode size     the file has that size now
 *   S inode            file or folder was synced    A 0 0 text       bytes went to standard output
 *   R inode 0 from to  renamed                      U 0 0 path       removed
 * A call is written down after it succeeded, under a lock: the order of the records is the order of the calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int log_fd = -1;

__attribute__((constructor)) static void begin(void) {
  const char *folder = getenv("HWBENCH_POWER_ROOT"), *log = getenv("HWBENCH_POWER_LOG");
  if (!folder || !log || !realpath(folder, root)) return;
  root_length = strlen(root);
  log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static int below(const char *path) {
  return log_fd >= 0 && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static void note(char kind, ino_t inode, long long number, const void *a, size_t a_size, const void *b, size_t b_size) {
  char head[96];
  int error = errno;
  int size = snprintf(head, sizeof head, "%c %llu %lld %zu %zu\n", kind, (unsigned long long)inode, number, a_size, b_size);
  struct iovec parts[3] = {{head, (size_t)size}, {(void *)a, a_size}, {(void *)b, b_size}};
  if (syscall(SYS_writev, log_fd, parts, 3) != (long)((size_t)size + a_size + b_size)) abort();
  errno = error;
}

/* Where an open file lies; 0 where that is not below the root. */
static int place(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = log_fd < 0 ? -1 : readlink(link, path, PATH_MAX - 1);
  if (size < 0) return 0;
  path[size] = 0;
  return below(path);
}

static ino_t inode_of(int fd) {
  struct stat found;
  return fstat(fd, &found) ? 0 : found.st_ino;
}

/* An absolute path with its folders resolved and its last part as it is; 0 where that is not below the root. */
static int resolve(int folder, const char *path, char *out) {
  char whole[PATH_MAX], link[64], head[PATH_MAX];
  if (log_fd < 0 || !path || !*path) return 0;
  if (path[0] == '/') {
    snprintf(whole, sizeof whole, "%s", path);
  } else {
    if (folder == AT_FDCWD) {
      if (!getcwd(head, sizeof head)) return 0;
    } else {
      snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
      ssize_t size = readlink(link, head, sizeof head - 1);
      if (size < 0) return 0;
      head[size] = 0;
    }
    if (snprintf(whole, sizeof whole, "%s/%s", head, path) >= (int)sizeof whole) return 0;
  }
  size_t end = strlen(whole);
  while (end > 1 && whole[end - 1] == '/') whole[--end] = 0;
  char *slash = strrchr(whole, '/');
  char last[NAME_MAX + 1];
  snprintf(last, sizeof last, "%s", slash + 1);
  *slash = 0;
  if (!realpath(*whole ? whole : "/", head)) return 0;
  if (snprintf(out, PATH_MAX, "%s/%s", head, last) >= PATH_MAX) return 0;
  return below(out);
}

#define REAL(name) \
  static __typeof__(name) *real; \
  if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define LOCKED(type, call) \
  pthread_mutex_lock(&turn); \
  type result = call
#define DONE \
  pthread_mutex_unlock(&turn); \
  return result

static void opened(int fd, int flags, int existed) {
  char path[PATH_MAX];
  struct stat found;
  if (fd < 0 || !(flags & (O_CREAT | O_TRUNC)) || !place(fd, path) || fstat(fd, &found) || !S_ISREG(found.st_mode)) return;
  if (!existed) note('C', found.st_ino, 0, path, strlen(path), "", 0);
  else if (flags & O_TRUNC) note('Z', found.st_ino, 0, "", 0, "", 0);
}

static int there(int folder, const char *path) {
  struct stat found;
  int error = errno, known = !fstatat(folder, path, &found, 0);
  errno = error;
  return known;
}

#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    REAL(name); \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    int existed = there(AT_FDCWD, path); \
    LOCKED(int, real(path, flags, mode)); \
    opened(result, flags, existed); \
    DONE; \
  }
#define OPENAT(name) \
  int name(int folder, const char *path, int flags, ...) { \
    REAL(name); \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    int existed = there(folder, path); \
    LOCKED(int, real(folder, path, flags, mode)); \
    opened(result, flags, existed); \
    DONE; \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static void wrote(int fd, long long offset, const void *data, ssize_t size) {
  char path[PATH_MAX];
  if (size <= 0 || log_fd < 0) return;
  if (fd == STDOUT_FILENO) note('A', 0, 0, data, (size_t)size, "", 0);
  else if (place(fd, path)) {
    if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - size;
    note('W', inode_of(fd), offset, data, (size_t)size, "", 0);
  }
}

ssize_t write(int fd, const void *data, size_t size) {
  REAL(write);
  LOCKED(ssize_t, real(fd, data, size));
  wrote(fd, -1, data, result);
  DONE;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
  REAL(pwrite);
  LOCKED(ssize_t, real(fd, data, size, offset));
  wrote(fd, offset, data, result);
  DONE;
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
  REAL(pwrite64);
  LOCKED(ssize_t, real(fd, data, size, offset));
  wrote(fd, offset, data, result);
  DONE;
}

/* What the kernel copied is read back. */
static void copied(int fd, long long offset, ssize_t size) {
  char path[PATH_MAX], *data;
  if (size <= 0 || !place(fd, path) || !(data = malloc((size_t)size))) return;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  int again = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
  if (again >= 0 && pread(again, data, (size_t)size, offset) == size) wrote(fd, offset, data, size);
  if (again >= 0) close(again);
  free(data);
}
ssize_t sendfile(int out, int in, off_t *from, size_t size) {
  REAL(sendfile);
  LOCKED(ssize_t, real(out, in, from, size));
  copied(out, lseek(out, 0, SEEK_CUR) - result, result);
  DONE;
}
ssize_t sendfile64(int out, int in, off64_t *from, size_t size) {
  REAL(sendfile64);
  LOCKED(ssize_t, real(out, in, from, size));
  copied(out, lseek(out, 0, SEEK_CUR) - result, result);
  DONE;
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
  REAL(copy_file_range);
  LOCKED(ssize_t, real(in, from, out, to, size, flags));
  copied(out, (to ? *to : lseek(out, 0, SEEK_CUR)) - result, result);
  DONE;
}

static void resized(int fd, int failed, long long size) {
  char path[PATH_MAX];
  if (!failed && place(fd, path)) note('Z', inode_of(fd), size, "", 0, "", 0);
}
int ftruncate(int fd, off_t size) {
  REAL(ftruncate);
  LOCKED(int, real(fd, size));
  resized(fd, result, size);
  DONE;
}
int ftruncate64(int fd, off64_t size) {
  REAL(ftruncate64);
  LOCKED(int, real(fd, size));
  resized(fd, result, size);
  DONE;
}

static void synced(int fd, int failed) {
  char path[PATH_MAX];
  if (!failed && place(fd, path)) note('S', inode_of(fd), 0, "", 0, "", 0);
}
int fsync(int fd) {
  REAL(fsync);
  LOCKED(int, real(fd));
  synced(fd, result);
  DONE;
}
int fdatasync(int fd) {
  REAL(fdatasync);
  LOCKED(int, real(fd));
  synced(fd, result);
  DONE;
}

static void renamed(int failed, int old_known, const char *old, int new_known, const char *new) {
  struct stat found;
  if (failed || (!old_known && !new_known) || stat(new, &found)) return;
  note('R', found.st_ino, 0, old, strlen(old), new, strlen(new));
}
int renameat(int old_folder, const char *old, int new_folder, const char *new) {
  REAL(renameat);
  char from[PATH_MAX] = "", to[PATH_MAX] = "";
  int old_known = resolve(old_folder, old, from), new_known = resolve(new_folder, new, to);
  LOCKED(int, real(old_folder, old, new_folder, new));
  renamed(result, old_known, from, new_known, to);
  DONE;
}
int rename(const char *old, const char *new) { return renameat(AT_FDCWD, old, AT_FDCWD, new); }

int unlinkat(int folder, const char *path, int flags) {
  REAL(unlinkat);
  char at[PATH_MAX];
  int known = resolve(folder, path, at);
  LOCKED(int, real(folder, path, flags));
  if (!result && known) note('U', 0, 0, at, strlen(at), "", 0);
  DONE;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int folder, const char *path, mode_t mode) {
  REAL(mkdirat);
  char at[PATH_MAX];
  struct stat found;
  int known = resolve(folder, path, at);
  LOCKED(int, real(folder, path, mode));
  if (!result && known && !stat(at, &found)) note('D', found.st_ino, 0, at, strlen(at), "", 0);
  DONE;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
