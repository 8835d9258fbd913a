import CSystem
import Synchronization

/// The processes that have a directory open, and which of them live.
///
/// Each has a number from 1 to 250 and, for as long as it lives, an open-file-description lock
/// on a byte of the file `hutch.lock`: the kernel takes it away, however the process ends, and not
/// before. Process numbers are never used: containers that share a directory do not share them.
///
///     byte 8        held while a directory is being opened or closed
///     byte 9        for reading by each process that has it open; for writing by an opening that
///                   keeps others out, and its forked children, through an open file of their own
///     byte 10       held by a process while it writes a checkpoint
///     byte 16 + n   of the process with the number n
///
/// The bytes below are the SQLite store's (Disk/WriterLock.swift); byte 0, its turn, is held for as
/// long as a new store is being made, so that no manifest is made beside it.
///
/// A number is used again, so it comes with an incarnation, which the index counts.
final class LogMember {
  static let most = 250
  private static let turn: Int64 = 0
  private static let opening: Int64 = 8
  private static let presence: Int64 = 9
  private static let checkpoint: Int64 = 10
  private static let members: Int64 = 16

  private let file: Descriptor
  /// An open file that has byte 9 locked. A forked child inherits it, and has it in common with its
  /// parent.
  private let common: Descriptor
  /// 0: none yet.
  private(set) var number = 0
  /// The holder of the index's lock (the word of LogLock) that a thread has waited for in vain; 0:
  /// there is none. Relaxed: it only shortens waits.
  let stopped = Atomic<UInt32>(0)
  /// True after a fork: another process has `common` too.
  private(set) var isCommon = false
  /// The member that this process was before, in a store that has gone out of service. It keeps its
  /// number, since a write may still be under way there. Set before anything else uses the member,
  /// and given up by `LogStorage.endEarlier`, which keeps those from running that look at it.
  var earlier: LogMember?

  private init(_ file: consuming Descriptor, _ common: consuming Descriptor) {
    self.file = file
    self.common = common
  }

  /// Delegates: see Copying.
  convenience init(_ directory: Directory) throws(Failure) {
    self.init(try LockFile.open(directory), try LockFile.open(directory))
  }

  /// A member that keeps others from opening and closing the directory. Everything that an opening
  /// makes, and everything that a destruction removes but the lock file itself, is made and removed
  /// within this lock. A destruction removes the lock file last; an opening that has waited for it
  /// has locked a file that is not in the directory any more, and begins again.
  static func opening(_ directory: Directory) throws(Failure) -> LogMember {
    while true {
      let member = try LogMember(directory)
      try member.beginOpening()
      if member.isCurrent(directory) { return member }
    }
  }

  /// True if both open files are the lock file that is in the directory now.
  private func isCurrent(_ directory: Directory) -> Bool {
    guard let there = LockFile.status(in: directory),
      let own = Files.status(of: file.number), let second = Files.status(of: common.number)
    else { return false }
    return own.identity == there.identity && second.identity == there.identity
  }

  /// Keeps others from opening and closing the directory. It is waited for.
  func beginOpening() throws(Failure) { try take(LogMember.opening) }

  func tryOpening() -> Bool { tryTake(LogMember.opening) }

  func endOpening() { give(LogMember.opening) }

  /// Keeps other processes from writing a checkpoint. False: one of them does.
  func tryCheckpoint() -> Bool { tryTake(LogMember.checkpoint) }

  func endCheckpoint() { give(LogMember.checkpoint) }

  /// Keeps a SQLite store from being made in the directory.
  func beginMaking() throws(Failure) { try take(LogMember.turn) }

  func endMaking() { give(LogMember.turn) }

  private func take(_ byte: Int64) throws(Failure) {
    let end = Deadline.forAnotherProcess
    while !tryTake(byte) {
      try Directory.checkIsLocked()
      if end.hasPassed { throw Failure(.busy, "another process has the directory open") }
      usleep(200)
    }
  }

  @inline(never)
  private func tryTake(_ byte: Int64) -> Bool {
    hutch_ofd_lock_byte(file.number, Int16(F_WRLCK), byte) == 0
  }

  @inline(never)
  private func give(_ byte: Int64) {
    _ = hutch_ofd_lock_byte(file.number, Int16(F_UNLCK), byte)
  }

  /// True if the directory has no other member. The caller opens or closes the directory.
  func isSole() -> Bool { otherMember(1, LogMember.most) == nil }

  /// True if no other process has the directory open: the other members, if there are any, are of
  /// this process. The caller opens or closes the directory, or has `tryOpening`.
  func isAlone() -> Bool { areOwn(1, LogMember.most) }

  /// Whether no members with numbers from `first` to `last` are of another process.
  private func areOwn(_ first: Int, _ last: Int) -> Bool {
    // The kernel names any of them.
    guard first <= last, let other = otherMember(first, last) else { return true }
    var own = earlier(than: self)
    while let member = own, member.number != other { own = earlier(than: member) }
    return own != nil && areOwn(first, other - 1) && areOwn(other + 1, last)
  }

  /// The newest of the members before `later` that this process has been in this directory.
  @inline(never)
  func earlier(than later: LogMember) -> LogMember? {
    var own = later.earlier
    while let member = own, !member.isOfFile(of: self) { own = member.earlier }
    return own
  }

  /// The number of another member, from `first` to `last`.
  private func otherMember(_ first: Int, _ last: Int) -> Int? {
    var lock = hutch_flock(
      Int16(F_WRLCK), LogMember.members + Int64(first), Int64(last - first + 1))
    if hutch_ofd_first(file.number, &lock) == 0 { return nil }
    return min(max(first, Int(lock.l_start) - Int(LogMember.members)), last)
  }

  private func isOfFile(of other: LogMember) -> Bool {
    guard let own = Files.status(of: file.number), let there = Files.status(of: other.file.number)
    else { return false }
    return own.identity == there.identity
  }

  /// Takes a number. `keepsOthersOut`: no other process has the directory open, or will have. The
  /// open file by which an earlier member keeps them out becomes this one's too.
  func join(keepsOthersOut: Bool = false) throws(Failure) {
    if keepsOthersOut, let own = earlier(than: self) {
      guard dup3(own.common.number, common.number, O_CLOEXEC) >= 0 else {
        throw .system("cannot lock the directory")
      }
      isCommon = own.isCommon
    }
    let kind = Int16(keepsOthersOut ? F_WRLCK : F_RDLCK)
    guard hutch_ofd_lock_byte(common.number, kind, LogMember.presence) == 0 else {
      throw Failure(.busy, "another process has the directory open")
    }
    try takeNumber()
  }

  private func takeNumber() throws(Failure) {
    for candidate in 1...LogMember.most where tryTake(LogMember.members + Int64(candidate)) {
      number = candidate
      return
    }
    throw Failure(.busy, "too many processes have the directory open")
  }

  /// In the child of a fork: takes a number of its own, on an open file of its own. The parent's
  /// open file, which the child has inherited, would say that the parent lives for as long as the
  /// child does. It is closed last, so that at each moment one of the two files shows that a
  /// process has the directory open.
  func beginInChild(_ directory: Directory) throws(Failure) {
    let own = try LogMember(directory)
    try own.takeNumber()
    guard dup3(own.file.number, file.number, O_CLOEXEC) >= 0 else {
      throw .system("cannot lock the directory")
    }
    number = own.number
    isCommon = true
  }

  /// In the parent of a fork.
  func noteFork() { isCommon = true }

  /// True if the process with this number lives, or another one has taken the number since.
  func isAlive(_ other: Int) -> Bool {
    other == number
      || hutch_ofd_is_locked(file.number, LogMember.members + Int64(other)) != 0
  }

  /// The process no longer has the directory open. No other process opens or closes it meanwhile.
  func leave() {
    if number > 0 { give(LogMember.members + Int64(number)) }
    // The forked children of an exclusive opening have this open file in common with it, so byte 9
    // stays locked until the last of them ends.
    if isCommon {
      LogMember.replace(common.number)
    } else {
      _ = hutch_ofd_lock_byte(common.number, Int16(F_UNLCK), LogMember.presence)
    }
  }

  /// In the child of a fork that has no part in the directory: the child must not seem to be the
  /// parent, nor keep other processes out.
  func leaveToParent() {
    LogMember.replace(file.number)
    LogMember.replace(common.number)
  }

  /// Closes a copy of an open file, which would keep its locks, and keeps the descriptor's number
  /// in use.
  private static func replace(_ number: Int32) {
    guard let null = Files.open(Files.path("/dev/null"), O_RDONLY) else { return }
    _ = dup3(null, number, O_CLOEXEC)
    CSystem.close(null)
  }
}
