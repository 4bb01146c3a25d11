#pragma once

namespace performer {

/// Lets idle OpenMP threads of this process sleep instead of spin, from the first call with more
/// than one thread on. libgomp's threads spin for milliseconds while they wait for work or for each
/// other; as soon as another process wants a core, each operator then costs a time slice.
///
/// The setting for that is read when libgomp is loaded, which torch did long ago. But libgomp spins
/// briefly (100 turns instead of 300,000) while it manages more threads than there are processors:
/// this starts what is missing, once, usually two threads, and they sleep for good. Who has set
/// OMP_WAIT_POLICY or GOMP_SPINCOUNT has chosen; then, and under another OpenMP runtime, nothing is
/// done.
void let_idle_threads_sleep();

}  // namespace performer
