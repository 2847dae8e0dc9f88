//! A user agent in this process: it has a connection like a peer on the network, but no socket. Messages sent by its flow come out here.

use std::sync::Arc;

use trunkline_sip::flow::Flow;

use super::connections::Connections;
use super::outbox::Outbox;

/// Connection of a user agent in this process; dropping it closes the connection.
#[derive(Debug)]
pub struct InProcess {
    connections: Connections,
    flow: Flow,
    outbox: Arc<Outbox>,
}

impl InProcess {
    /// Attaches a user agent. The flow gets a number of its own as its connection.
    pub fn attach(connections: &Connections, flow: Flow) -> Self {
        let (flow, outbox) = connections.enter_in_process(flow);
        Self {
            connections: connections.clone(),
            flow,
            outbox,
        }
    }

    /// Returns the flow of its messages, in both directions.
    pub const fn flow(&self) -> Flow {
        self.flow
    }

    /// Waits for messages, and swaps their octets into `octets`, which must be empty; false once no more will come.
    pub async fn receive(&self, octets: &mut Vec<u8>) -> bool {
        self.outbox.take(octets).await.is_ok()
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.connections.remove(self.flow.connection);
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::flow::Transport;

    use super::super::stream::StreamSettings;
    use super::*;

    #[tokio::test]
    async fn it_gets_what_is_sent_by_its_flow_alone() {
        let connections = Connections::new(StreamSettings::default(), |_, _, _, _| {});
        let address = "127.0.0.1:40000".parse().unwrap();
        let peer = Flow {
            transport: Transport::Tcp,
            listener: 0,
            connection: 0,
            local: address,
            peer: address,
        };
        let agent = InProcess::attach(&connections, peer);
        let flow = agent.flow();
        assert!(flow.is_connection());

        connections.send(&flow, b"one").unwrap();
        // A message to that address opens a connection to it, and never reaches the user agent.
        connections.send(&peer, b"other").unwrap();
        let mut octets = Vec::new();
        assert!(agent.receive(&mut octets).await);
        assert_eq!(octets, b"one");

        drop(agent);
        assert!(connections.send(&flow, b"late").is_err());
    }
}
