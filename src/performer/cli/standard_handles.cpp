#include "performer/cli/standard_handles.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <initializer_list>

namespace performer::cli {

void open_closed_handles() {
  for (const int handle : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(handle, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one, since those below are open. Standard output opened for
    // reading refuses what is written.
    const int flags = handle == STDERR_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", flags) != handle) std::_Exit(1);
  }
}

}  // namespace performer::cli
