import CSystem
import Synchronization

// Places of the log that no segment has are given back to the file system: they become holes of the
// file. A reader takes no lock. It may have found an entry before its segment left the table, and
// be about to read it, or to note an access in it. A store to a hole needs room on the file system,
// and on tmpfs a load does too; without room the thread dies by SIGBUS. So a place is given back
// only when every read has ended that may have begun before.
//
//     reads       are calls inside the cache's gate, and looks (Gate). The lines that were seen
//                 without one since the segment left the table have no such read any more
//     alone       if no other process has the directory open, and all lines are so, the place is
//                 given back at once
//     else        it waits: `waiting` is stepped. The maintenance of each process notes for which
//                 value of `waiting` its own reads have ended (`readers`). Once all processes that
//                 live have noted the newest value, the maintenance of any gives back all places
//                 that no segment has. A stopped process notes nothing, so nothing is given back
//                 meanwhile
//     a segment   that is added may have a place that waits: it is in the file
//
// A process reads nothing before it has noted its first value, with a fence between: either the
// process that gives places back finds the note, or the new one finds the segment gone.

/// The reads of this process that may have begun before `waiting` had its value.
struct LogReaders {
  fileprivate var value: UInt64 = 0
  /// The lines that have not been seen without one since then.
  fileprivate var lines = UInt64.max
}

extension LogStore {
  static func readersOffset(_ number: Int) -> Int { IndexAt.readers + number * 8 }
  private var ownReaders: Int { LogStore.readersOffset(member.number) }

  /// The process, which has a new number, does not read yet.
  func noteNoReaders() { words.store(ownReaders, .max) }

  var isReading: Bool { words.load(ownReaders) != .max }

  /// The process begins to read. Any thread may call this; the first call counts.
  func beginReading() {
    SharedWords.replace(words.base + ownReaders, .max, by: words.load(IndexAt.waiting))
    hutch_thread_barrier()
  }

  /// True if places wait to be given back.
  var hasWaitingPlaces: Bool {
    words.load(IndexAt.waiting) != words.load(IndexAt.givenBack)
  }

  /// The lines of this process without a read, as of now.
  private var quietLines: UInt64 {
    hutch_thread_barrier()
    return observer?.quietLines ?? .max
  }

  /// True once every call has ended that began before this store took the place of an earlier one.
  func isPastEarlier() -> Bool {
    linesBefore &= ~quietLines
    return linesBefore == 0
  }

  /// Gives back the places that wait, if no reader is left. The lock is not held.
  func giveBackWaiting(_ readers: inout LogReaders) throws(Failure) {
    let value = words.load(IndexAt.waiting)
    if value == words.load(IndexAt.givenBack) { return }
    if readers.value != value { readers = LogReaders(value: value) }
    if words.load(ownReaders) < value {
      readers.lines &= ~quietLines
      if readers.lines != 0 { return }
      words.store(ownReaders, value)
      var own = member.earlier(than: member)
      while let earlier = own {
        words.store(LogStore.readersOffset(earlier.number), value)
        own = member.earlier(than: earlier)
      }
    }
    try locked { () throws(Failure) in
      let value = words.load(IndexAt.waiting)
      for number in 1...LogMember.most
      where words.load(LogStore.readersOffset(number)) < value && member.isAlive(number) { return }
      try keepForCheckpoint()
      let taken = takenPlaces
      for place in 0..<min(Int(clamping: words.load(IndexAt.places)), mappedPlaces)
      where !taken.contains(place) { punch(place) }
      words.store(IndexAt.givenBack, value)
    }
  }

  /// Gives back the place of a segment that has left the table. The lock is held. A place that a
  /// checkpoint still needs stays in the file, until a segment has it again.
  func giveBack(_ place: Int) {
    guard (try? keepForCheckpoint()) != nil else { return }
    if !hasWaitingPlaces && !marks.hasOthers && quietLines == .max { return punch(place) }
    words.store(IndexAt.waiting, words.load(IndexAt.waiting) &+ 1)
  }

  private func punch(_ place: Int) {
    Files.punch(logFile.number, place &<< segmentShift, segmentSize)
    CrashPoint.pass()
  }
}
