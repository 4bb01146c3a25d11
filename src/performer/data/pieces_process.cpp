#include "performer/data/pieces_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "performer/core/error.h"

namespace performer::data::pieces {
namespace {

constexpr int kNotFound = 127;  // the dynamic loader's, for a library that is missing

// Beside the library that holds this function, in a build folder as in an installation.
std::string find_program() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&find_program), &info) == 0) return kProgram;
  std::error_code ignored;
  auto library = std::filesystem::canonical(info.dli_fname, ignored);
  if (ignored) library = info.dli_fname;
  return (library.parent_path() / kProgram).string();
}

// Starts `program` with `socket` as its standard input, and no other descriptor of ours; an errno.
int spawn(const std::string& program, int socket, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  if (const int error = ::posix_spawn_file_actions_init(&actions); error != 0) return error;
  int error = ::posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  // It answers over the socket; words of its libraries are for nobody.
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (error == 0) {
      error = ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
    }
  }
  if (error == 0) error = ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  std::string name = kProgram;
  std::array<char*, 2> arguments = {name.data(), nullptr};
  if (error == 0) {
    error = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments.data(), environ);
  }
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

[[noreturn]] void fail_start(const std::string& program, const std::string& why) {
  fail(ExitCode::kFailure,
       "{}: cannot be started: {}; SentencePiece tokenizers need this program beside "
       "libperformer.so, and it needs the package libsentencepiece0",
       program, why);
}

std::string message_of(int error) { return std::generic_category().message(error); }

}  // namespace

Process::Process() : program_(find_program()) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    fail_start(program_, message_of(errno));
  }
  socket_ = FileDescriptor(ends[0]);
  const FileDescriptor theirs(ends[1]);
  if (const int error = spawn(program_, theirs.get(), pid_); error != 0) {
    pid_ = -1;
    fail_start(program_, message_of(error));
  }
}

Process::~Process() {
  // The end of its input is the end of the process, also where a fork of ours holds the socket.
  ::shutdown(socket_.get(), SHUT_RDWR);
  socket_.reset();
  if (pid_ > 0) {
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
}

// Where sending fails, the process may have answered before it ended.
Reply Process::ask(Ask ask, std::span<const std::byte> request) {
  write_frame(socket_.get(), ask, request);
  return receive();
}

Reply Process::ask_with_text(Ask ask, std::span<const std::byte> request, std::string_view text) {
  if (write_frame(socket_.get(), ask, request) && send_all(socket_.get(), bytes_of(text))) {
    ::shutdown(socket_.get(), SHUT_WR);
  }
  return receive();
}

Reply Process::receive() {
  std::array<FrameHead, 1> head{};
  if (!receive_all(socket_.get(), std::as_writable_bytes(std::span(head)))) return lost();
  if (head[0].bytes > kMaxFrame) return lost();
  const bool done = static_cast<Answer>(head[0].kind) == Answer::kDone;
  Reply reply{done ? Outcome::kDone : Outcome::kRefused, std::string(head[0].bytes, '\0')};
  if (!receive_all(socket_.get(), std::as_writable_bytes(std::span(reply.text)))) return lost();
  return reply;
}

// The process is gone, or no longer to be understood: says how it ended.
Reply Process::lost() {
  ::shutdown(socket_.get(), SHUT_RDWR);
  socket_.reset();
  int status = 0;
  pid_t ended = -1;
  if (const pid_t pid = std::exchange(pid_, -1); pid > 0) {
    do {
      ended = ::waitpid(pid, &status, 0);
    } while (ended < 0 && errno == EINTR);
  }
  if (ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
    fail_start(program_, "a library that it needs is missing");
  }
  const bool signalled = ended > 0 && WIFSIGNALED(status);
  if ((ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == kNoMemory) ||
      (signalled && WTERMSIG(status) == SIGKILL)) {
    fail(ExitCode::kOutOfMemory, "{}: {}; take a smaller text or model", kProgram,
         signalled ? "was killed, as systems do that run out of memory" : "out of memory");
  }
  if (signalled) {
    return {Outcome::kLost, fmt::format("{} was ended by signal {}", kProgram, WTERMSIG(status))};
  }
  return {Outcome::kLost, fmt::format("{} ended before it answered", kProgram)};
}

}  // namespace performer::data::pieces
