#include "performer/ops/last_kernel.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

TEST(LastKernel, IsTheLastOneSet) {
  performer::set_last_kernel("cpu/first");
  performer::set_last_kernel("composed");
  EXPECT_EQ(performer::last_kernel(), "composed");
}

TEST(LastKernel, IsOfTheCallingThread) {
  performer::set_last_kernel("composed");
  std::string seen = "not run";
  std::thread([&] { seen = performer::last_kernel(); }).join();
  EXPECT_EQ(seen, "");
}
