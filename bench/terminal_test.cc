#include "bench/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace ringpipe {
namespace {

// A terminal of 100 columns, and a user with no wishes.
class TerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    winsize window = {};
    window.ws_row = 24;
    window.ws_col = 100;
    ASSERT_EQ(openpty(&master_, &terminal_, nullptr, nullptr, &window), 0);
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "NO_COLOR", "COLUMNS"}) {
      unsetenv(name);
    }
    setenv("TERM", "xterm", 1);
  }
  void TearDown() override {
    close(master_);
    close(terminal_);
  }

  int master_ = -1;
  int terminal_ = -1;
};

TEST_F(TerminalTest, TakesEscapesAndColours) {
  EXPECT_TRUE(TakesEscapes(terminal_));
  EXPECT_TRUE(TakesColours(terminal_));
  unsetenv("TERM");
  EXPECT_TRUE(TakesEscapes(terminal_));
}

TEST_F(TerminalTest, TakesNoneWhereItIsDumbOrOnlyALaunchersOrNoTerminal) {
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(TakesEscapes(terminal_));
  setenv("TERM", "xterm", 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  EXPECT_FALSE(TakesEscapes(terminal_));
  unsetenv("OMPI_COMM_WORLD_RANK");
  const int file = open("/dev/null", O_WRONLY);
  EXPECT_FALSE(TakesEscapes(file));
  EXPECT_FALSE(TakesColours(file));
  close(file);
}

TEST_F(TerminalTest, GetsNoColoursFromWhoDoesNotWantThem) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(TakesColours(terminal_));
  EXPECT_TRUE(TakesEscapes(terminal_));  // the progress bar stays
  setenv("NO_COLOR", "", 1);             // as if it were not set
  EXPECT_TRUE(TakesColours(terminal_));
}

TEST_F(TerminalTest, HasTheSmallerOfItsOwnColumnsAndTheVariables) {
  EXPECT_EQ(TerminalColumns(terminal_), 100);
  setenv("COLUMNS", "70", 1);
  EXPECT_EQ(TerminalColumns(terminal_), 70);
  setenv("COLUMNS", "200", 1);
  EXPECT_EQ(TerminalColumns(terminal_), 100);
  setenv("COLUMNS", "many", 1);
  EXPECT_EQ(TerminalColumns(terminal_), 100);
  EXPECT_EQ(TerminalColumns(-1), 80);
}

}  // namespace
}  // namespace ringpipe
