package wire

// The values of MESSAGE_ID of the action log's journal entries (systemd.journal-fields(7)).
// They never change.
const (
	MessageActed      = "7814c8610f0c46d298c935c911f136fb" // a change was carried out or failed, a job was taken
	MessageRefused    = "3d87440772ea4b289827b7ed226cb0a5"
	MessageJobEnded   = "c2fc1522c5b44866a538715a63e4874e"
	MessageSummarised = "e25a289e9aac4a6899f98888650c7a32" // more were refused or failed, only counted
)

// ManagerUnit is the unit that the manager runs as.
const ManagerUnit = "ctrl-manager.service"

// NodeRefuses stands in every refusal that is a node's own and not one of a caller's rights.
const NodeRefuses = " refuses to let the manager "
