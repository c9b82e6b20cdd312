//! Avatars of users on the homeserver.

use http::Method;
use ruma::{
    MxcUri, OwnedMxcUri, UserId,
    api::client::{
        media::create_content,
        profile::{get_profile_field, set_profile_field},
    },
    profile::{AvatarUrl, ProfileFieldValue},
};

use crate::{Error, Homeserver, homeserver::Acting};

impl Homeserver {
    /// Uploads a JPEG and makes it the user's avatar, or removes the avatar. Deletes the previous image if we have an admin
    /// token. Do not call it after [`Self::deactivate`], see [`Self::set_display_name`].
    pub async fn set_avatar(&self, localpart: &str, jpeg: Option<Vec<u8>>) -> Result<(), Error> {
        let user_id = self.user_id(localpart)?;
        let previous = self.avatar(localpart).await?;
        // Before the profile changes, because a repeated call would not find the address there.
        if let Some(previous) = &previous {
            self.delete_image(previous, &user_id).await?;
        }
        let next = match jpeg {
            Some(jpeg) => {
                let mut request = create_content::v3::Request::new(jpeg);
                request.content_type = Some("image/jpeg".to_owned());
                self.call(request, &user_id, Acting::AsTheUser).await?.content_uri
            }
            None if previous.is_none() => return Ok(()),
            // Synapse removes the avatar.
            None => OwnedMxcUri::from(""),
        };
        let field = ProfileFieldValue::AvatarUrl(next);
        let request = set_profile_field::v3::Request::new(user_id.clone(), field);
        self.call(request, &user_id, Acting::AsTheUser).await.map(|_| ())
    }

    /// Returns the address of a user's avatar.
    pub async fn avatar(&self, localpart: &str) -> Result<Option<OwnedMxcUri>, Error> {
        let user_id = self.user_id(localpart)?;
        let request = get_profile_field::v3::Request::new_static::<AvatarUrl>(user_id.clone());
        match self.call(request, &user_id, Acting::AsTheUser).await {
            Ok(response) => Ok(response.value.filter(|address| !address.as_str().is_empty())),
            Err(Error::Refused { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes an image that was uploaded as this user. If users can write their profiles, the address may be that of media
    /// of another user. Succeeds if the image does not exist, and if we may not delete it.
    async fn delete_image(&self, address: &MxcUri, uploader: &UserId) -> Result<(), Error> {
        let Ok((server, id)) = address.parts() else { return Ok(()) };
        if server != uploader.server_name() {
            return Ok(());
        }
        let (path, bot) = (["v1", "media", server.as_str(), id], self.bot()?);
        let deleted = match self.administer(Method::GET, &path, None, &bot).await {
            Ok(found) if found["media_info"]["user_id"] != uploader.as_str() => return Ok(()),
            Ok(_) => self.administer(Method::DELETE, &path, None, &bot).await,
            Err(error) => Err(error),
        };
        match deleted {
            Ok(_) | Err(Error::NoAdmin | Error::NotAdmin(_) | Error::NoSuchUser(_) | Error::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
