#pragma once

namespace performer::cli {

/// Opens standard handles that the caller left closed (`performer train … >&- 2>&-`): the next file
/// opened would get their numbers, and lines for the terminal would land in it. To be called before
/// any file is opened. What is read is empty then; log lines vanish; results cannot be written,
/// which is an error as on a full disk.
void open_closed_handles();

}  // namespace performer::cli
