import CLogTests
import CSystem

// One program for all tests of the log store, so that the engine is compiled for them once.

/// What follows the name of a test.
struct Arguments {
  let count: Int
  let words: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>

  subscript(_ index: Int) -> UnsafeMutablePointer<CChar>? {
    index < count ? words[index] : nil
  }
}

/// log_tests TEST [ARGUMENT...]
@_cdecl("main")
func main(
  _ count: Int32, _ words: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
) -> Int32 {
  libraryRandom = Random(UInt64(Clock.read(CLOCK_REALTIME)))
  if count > 1, let name = words[1] {
    let arguments = Arguments(count: Int(count) - 2, words: words + 2)
    if strcmp(name, "crash_points") == 0 { return crashPoints(arguments) }
    if strcmp(name, "kills") == 0 { return kills(arguments) }
    if strcmp(name, "full_disk") == 0 { return fullDisk() }
    if strcmp(name, "lost_power") == 0 { return lostPower(arguments) }
    if strcmp(name, "lost_files") == 0 { return lostFiles(arguments) }
    if strcmp(name, "walks") == 0 { return walks() }
    if strcmp(name, "reuse") == 0 { return reuse(arguments) }
    if strcmp(name, "triggers") == 0 { return triggers() }
    if strcmp(name, "refusals") == 0 { return refusals() }
    if strcmp(name, "locks") == 0 { return locks() }
    if strcmp(name, "expirations") == 0 { return expirations() }
    if strcmp(name, "versions") == 0 { return versions() }
    if strcmp(name, "gaps") == 0 { return gaps() }
    if strcmp(name, "sweeps") == 0 { return sweeps() }
    if strcmp(name, "ghosts") == 0 { return ghosts() }
    if strcmp(name, "counts") == 0 { return counts() }
  }
  print("log_tests crash_points [SCENARIO|all] [SEED] | kills [COUNT] [SEED] | full_disk | walks"
      + " | triggers | refusals | locks | expirations | versions | gaps"
      + " | sweeps | ghosts | counts"
      + " | reuse [COUNT] [SEED] | lost_power [COUNT] [SEED] | lost_files [COUNT] [SEED]")
  return 2
}
