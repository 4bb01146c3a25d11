#pragma once

namespace performer {

/// Lets idle OpenMP threads of this process sleep instead of spin, where it has more than one.
/// libgomp's threads spin for milliseconds while they wait for work or for each other; as soon as
/// another process wants a core, each operator then costs a time slice.
///
/// The setting for that is read when libgomp is loaded, which torch did long ago. But libgomp spins
/// briefly (100 turns instead of 300,000) while it manages more threads than there are processors:
/// this starts what is missing, and again what later calls with fewer threads miss. They sleep for
/// good. Nothing is done where more than three would be needed, for want of room for their threads,
/// under another OpenMP runtime, and where OMP_WAIT_POLICY or GOMP_SPINCOUNT is set: then the user
/// has chosen.
void let_idle_threads_sleep();

}  // namespace performer
