/// Tiers of a cache: those that a call concerns, those that store a value, those of an event, or
/// the one that has an entry. The bits are those of HUTCH_TIER_*.
struct Tiers: OptionSet {
  let rawValue: UInt32

  static let memory = Tiers(rawValue: 1)
  static let disk = Tiers(rawValue: 2)
  /// The whole cache. For a cache without a store: the memory tier.
  static let whole: Tiers = [.memory, .disk]
}

/// The tiers in which a put stores: the numbers of HUTCH_WRITE_*.
enum WritePolicy: UInt32 {
  /// For a put: the cache's policy. For a cache: `through`.
  case standard = 0
  case through = 1
  case memory = 2
  case disk = 3
  /// In memory, and on disk when memory evicts the entry (WriteBack.swift).
  case onEviction = 4

  /// The policy of a put through a view of one tier, which has no choice.
  init(_ scope: Tiers) { self = scope == .memory ? .memory : scope == .disk ? .disk : .through }

  /// The tiers that store the value at once.
  var tiers: Tiers {
    switch self {
    case .standard, .through: .whole
    case .memory, .onEviction: .memory
    case .disk: .disk
    }
  }

  /// The policy for a value that is a file, or may become one: such a value is not deferred in
  /// memory.
  var ofFile: WritePolicy { self == .onEviction ? .through : self }
}
