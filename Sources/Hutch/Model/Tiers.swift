/// Tiers of a cache: those that a call is about, that a value goes to, that an event happened in,
/// or the one that has an entry. The bits are those of HUTCH_TIER_*.
struct Tiers: OptionSet {
  let rawValue: UInt32

  static let memory = Tiers(rawValue: 1)
  static let disk = Tiers(rawValue: 2)
  /// The cache as one. Of a cache that has no store: what is in memory.
  static let whole: Tiers = [.memory, .disk]
}

/// In which tiers a put stores: the numbers of HUTCH_WRITE_*.
enum WritePolicy: UInt32 {
  /// Of a put: as the cache. Of a cache: `through`.
  case standard = 0
  case through = 1
  case memory = 2
  case disk = 3
  /// In memory, and on disk when memory gives it up (Cache+WriteBack.swift).
  case onEviction = 4

  /// Of a put through a view of one tier, which has no choice.
  init(_ scope: Tiers) { self = scope == .memory ? .memory : scope == .disk ? .disk : .through }

  /// The tiers that the value goes to at once.
  var tiers: Tiers {
    switch self {
    case .standard, .through: .whole
    case .memory, .onEviction: .memory
    case .disk: .disk
    }
  }

  /// Where a value goes that is, or may become, a file: not into memory alone, to be written later.
  var ofFile: WritePolicy { self == .onEviction ? .through : self }
}
