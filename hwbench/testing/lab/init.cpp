// The first process of a lab device. Each connection on the socket that it inherits as fd 3 brings a line of shell and
// three descriptors; the line runs in a session of its own, and its wait status goes back as four bytes.
#include <cstdint>
#include <cstring>
#include <string>

#include <csignal>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int kListener = 3;
constexpr int kStreams = 3;

// The command and its descriptors: a length of four bytes with the descriptors beside it, then the text.
bool receive(int connection, std::string& command, int (&streams)[kStreams]) {
  uint32_t length = 0;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof streams)];
  iovec part{&length, sizeof length};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(connection, &message, MSG_WAITALL) != sizeof length) return false;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof streams)) return false;
  std::memcpy(streams, CMSG_DATA(header), sizeof streams);
  command.resize(length);
  for (size_t at = 0; at < length;) {
    const ssize_t got = read(connection, &command[at], length - at);
    if (got <= 0) return false;
    at += static_cast<size_t>(got);
  }
  return true;
}

[[noreturn]] void execute(const std::string& command, int (&streams)[kStreams]) {
  setsid();
  // Above the three standard numbers first, so that none is overwritten before it is copied. None stays open beside:
  // who started the command waits until nobody holds its streams.
  for (int& stream : streams) {
    const int given = stream;
    stream = fcntl(given, F_DUPFD_CLOEXEC, 10);
    close(given);
  }
  for (int number = 0; number < kStreams; ++number) dup2(streams[number], number);
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(127);
}

[[noreturn]] void serve(int connection) {
  signal(SIGCHLD, SIG_DFL);
  std::string command;
  int streams[kStreams];
  if (!receive(connection, command, streams)) _exit(1);
  const pid_t child = fork();
  if (child == 0) {
    close(connection);
    execute(command, streams);
  }
  for (int stream : streams) close(stream);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) _exit(1);
  const int32_t answer = status;
  const bool sent = write(connection, &answer, sizeof answer) == sizeof answer;
  _exit(sent ? 0 : 1);
}

}  // namespace

int main() {
  signal(SIGCHLD, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  fcntl(kListener, F_SETFD, FD_CLOEXEC);
  for (;;) {
    const int connection = accept4(kListener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    if (fork() == 0) serve(connection);
    close(connection);
  }
}
